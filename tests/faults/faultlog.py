"""The fault log: what was done to programs and servers, and when.

It has one JSON line for each event, which is also kept in memory. Times are seconds since 1970,
UTC, of this machine, as in every other record of a run.
"""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import orjson

Event = Mapping[str, Any]


class FaultLog:
    """A file to which any thread may append."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._lock = threading.Lock()
        self.events: list[Event] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def note(self, event: str, **facts: Any) -> None:
        """Append an event."""
        line = {"event": event, "at_s": time.time(), **facts}
        with self._lock:
            self.events.append(line)
            self._file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))

    def of(self, event: str) -> list[Event]:
        """Return the events of one kind."""
        with self._lock:
            return [entry for entry in self.events if entry["event"] == event]
