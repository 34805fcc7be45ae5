"""The end of a batch, as its hook is told it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnd:
    """A batch whose tasks are all final.

    - `round`: 1 for its first end; one more each time that it ends again, as after a replay.
    - `ended_at`: when the end was found, as ISO text.
    - `counts`: its tasks: `total`, `succeeded`, `dead`, `cancelled`.
    - `cost`: in the currency's unit; None if it is unknown.
    """

    group: str
    batch: str
    round: int
    ended_at: str
    counts: Mapping[str, int]
    cost: float | None


class NotToldError(Exception):
    """A server or a command did not take the end of a batch; the text says why."""


Tell = Callable[[BatchEnd], Awaitable[None]]
