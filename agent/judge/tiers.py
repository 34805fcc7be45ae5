"""Which tier a retry waits in, and for how long. Pure; the jitter, from 0 to 1, is passed in."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.judge.waiting import clamped
from schemas.task.topics import duration_s

SPREAD = 0.2


@dataclass(frozen=True, slots=True)
class Tier:
    """A retry topic and its delay in seconds."""

    name: str
    delay_s: float


def tiers_of(names: Iterable[str]) -> tuple[Tier, ...]:
    """Return the tiers of these durations, which rise; raise ConfigError for a name that is none."""
    return tuple(Tier(name, duration_s(name)) for name in names)


def choose(tiers: Sequence[Tier], *, attempt: int, wanted_s: float) -> Tier:
    """Return the tier after this many counted attempts, or the smallest that is as long as what is wanted, where that is longer.

    The last tier serves all later attempts, and whatever is wanted beyond it.
    """
    step = tiers[min(attempt, len(tiers) - 1)]
    longer = (tier for tier in tiers if tier.delay_s >= wanted_s)
    return step if wanted_s <= step.delay_s else next(longer, tiers[-1])


def retry_delay(tier: Tier, *, wanted_s: float, jitter: float) -> float:
    """Return how long a retry waits: its tier's delay or what is wanted, within a day, and up to a fifth more."""
    return max(tier.delay_s, clamped(wanted_s)) * (1 + SPREAD * jitter)
