"""Keep what was made from JSON values, by their bytes: making it again would cost more."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Made = TypeVar("Made")

_DIGEST_BYTES = 16


class Remembered(Generic[Made]):
    """A cache whose entries have sizes, `room` together; the least recently used one goes first."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._kept: OrderedDict[bytes, tuple[Made, int]] = OrderedDict()
        self._used = 0
        self._lock = threading.Lock()

    def get(self, value: bytes, make: Callable[[], tuple[Made, int]]) -> Made:
        """Return what was made for this value; `make` returns it with its size.

        An error of `make` is not kept.
        """
        name = hashlib.blake2b(value, digest_size=_DIGEST_BYTES).digest()
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name][0]
        made, size = make()  # without the lock: another thread may make the same meanwhile
        with self._lock:
            if name not in self._kept and size <= self._room:
                self._kept[name] = made, size
                self._used += size
            while self._used > self._room:
                _, (_, freed) = self._kept.popitem(last=False)
                self._used -= freed
        return made
