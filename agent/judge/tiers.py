"""Chooses a retry's tier and its delay. Pure; the jitter, from 0 to 1, is passed in."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from docllm.agent.judge.snooze_delay import clamped
from docllm.agent.ports.outcome import Failure, Moved, Spent
from docllm.schemas.task.record.topics import duration_s
from docllm.schemas.task.waits import WaitReason

SPREAD = 0.2
IN_LEDGER = ""  # the tier of a retry that waits in the ledger
MAX_WAIT_S = 100 * 365 * 86_400.0
# The longest spread of waits in the ledger: a wait of weeks must not become one of days more.
_MAX_SPREAD_S = 60.0


@dataclass(frozen=True, slots=True)
class Tier:
    """A retry topic and its delay in seconds."""

    name: str
    delay_s: float


def tiers_of(names: Iterable[str]) -> tuple[Tier, ...]:
    """Return the tiers of these names, which are durations in rising order.

    Raises ConfigError for a name that is not a duration.
    """
    return tuple(Tier(name, duration_s(name)) for name in names)


def choose(tiers: Sequence[Tier], *, counted_before: int, wanted_s: float) -> Tier:
    """Return the tier of a retry; `counted_before` attempts were counted before the failed one.

    If `wanted_s` is longer than its delay, return the shortest tier that is long enough. The last
    tier serves all later attempts and all longer waits.
    """
    step = tiers[min(counted_before, len(tiers) - 1)]
    longer = (tier for tier in tiers if tier.delay_s >= wanted_s)
    return step if wanted_s <= step.delay_s else next(longer, tiers[-1])


def ledger_delay(*, wanted_s: float, jitter: float) -> float:
    """Return how long a retry waits in the ledger, in seconds: a little longer than `wanted_s`."""
    return min(wanted_s, MAX_WAIT_S) + jitter * min(SPREAD * wanted_s, _MAX_SPREAD_S)


def retry_delay(tier: Tier, *, wanted_s: float, jitter: float) -> float:
    """Return how long a retry waits, in seconds.

    This is the longer of the tier's delay and `wanted_s` (at most a day), plus up to a fifth.
    """
    return max(tier.delay_s, clamped(wanted_s)) * (1 + SPREAD * jitter)


def move(
    failure: Failure, spent: Spent, task_id: int, *, reason: WaitReason, key: str, delay_s: float
) -> Moved:
    """Return the outcome of a task that waits uncounted for a reason, for `delay_s` at most.

    It waits up to a fifth longer. Its id decides how long, so that not all tasks return at once.
    """
    return Moved(failure, spent, delay_s * (1 + SPREAD * (task_id % 997) / 997), reason, key)


def move_for_guard(failure: Failure, spent: Spent, task_id: int, key: str, longest: Tier) -> Moved:
    """Return the outcome of a task that waits uncounted for a guard; `key` is its `guard_key`."""
    return move(failure, spent, task_id, reason=WaitReason.GUARD, key=key, delay_s=longest.delay_s)
