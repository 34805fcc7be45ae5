"""The locks of a group as an agent sees them: who holds one, and who asks for it or leaves it.

A port and its values; the others are in this package's `__init__`.

Tested by tests/contract/test_ledger_resource_locks.py.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class Claimant(NamedTuple):
    """An attempt at a task, by its claim."""

    task_id: int
    owner: int


NOBODY = Claimant(0, 0)


@dataclass(frozen=True, slots=True)
class Held:
    """Who holds a lock; `alive` is False if its claim has ended, or nobody holds it."""

    name: str
    holder: Claimant
    fence: int
    alive: bool


@dataclass(slots=True)
class LockChange:
    """The attempts that give a lock back, or wait no longer, and those that ask for it."""

    leaving: list[Claimant] = field(default_factory=list)
    asking: list[Claimant] = field(default_factory=list)


class LockTable(Protocol):
    """The locks of one group."""

    async def change(self, changes: Mapping[str, LockChange]) -> list[Held]:
        """Make the changes, by name of the lock; return who holds each lock after them.

        First attempts leave, then others ask. A lock whose holder left, or whose holder's claim has
        ended, goes to the first of those who wait; a change without attempts does only that. All of
        it may be run again.
        """
        ...

    async def look(self, names: Iterable[str]) -> list[Held]:
        """Return who holds these locks; those that nobody has taken lately are left out."""
        ...
