"""A cache of objects that are costly to make from JSON values, by the values' bytes."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Cached = TypeVar("Cached")

_DIGEST_BYTES = 16


class DigestCache(Generic[Cached]):
    """A cache with `room` for objects of given sizes; the least recently used one goes first."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._objects: OrderedDict[bytes, tuple[Cached, int]] = OrderedDict()
        self._used = 0
        self._lock = threading.Lock()

    def get(self, value: bytes, make: Callable[[], tuple[Cached, int]]) -> Cached:
        """Return the object for this value; on a miss, `make` returns it with its size.

        Errors that `make` raises are not cached.
        """
        name = hashlib.blake2b(value, digest_size=_DIGEST_BYTES).digest()
        with self._lock:
            if name in self._objects:
                self._objects.move_to_end(name)
                return self._objects[name][0]
        # Not under the lock: another thread may make the same object meanwhile.
        cached, size = make()
        with self._lock:
            if name not in self._objects and size <= self._room:
                self._objects[name] = cached, size
                self._used += size
            while self._used > self._room:
                _, (_, freed) = self._objects.popitem(last=False)
                self._used -= freed
        return cached
