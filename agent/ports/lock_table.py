"""The port for a group's locks: who holds a lock, who waits for it, and who leaves it.

Attempts reach it through `agent/execution/lock_requests.py`.
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
    token: int
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

        Leaves are applied before asks. If the holder left or its claim has ended, the lock goes to
        the first waiter; an empty change does only this. Safe to run twice.
        """
        ...

    async def read_holders(self, names: Iterable[str]) -> list[Held]:
        """Return the holders of these locks; locks without a recent holder are left out."""
        ...
