"""The tier in which a retry waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.agent.judge.tiers import Tier, choose, move_for_guard, retry_delay, tiers_of
from docllm.agent.ports.outcome import Failure, Spent
from docllm.schemas.errors import ConfigError
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.waits import WaitReason

TIERS = tiers_of(("30s", "5m", "1h"))


def test_tiers_are_named_by_their_delay() -> None:
    """A tier's name is its delay; there may be any number of tiers."""
    assert (Tier("30s", 30), Tier("5m", 300), Tier("1h", 3600)) == TIERS
    assert tiers_of(["2d"]) == (Tier("2d", 172_800),)
    with pytest.raises(ConfigError, match="soon"):
        tiers_of(["30s", "soon"])


@pytest.mark.parametrize(
    ("counted_before", "wanted_s", "name"),
    [
        (0, 0, "30s"),
        (1, 0, "5m"),
        (2, 0, "1h"),
        (3, 0, "1h"),
        (99, 0, "1h"),
        (0, 29, "30s"),
        (0, 30, "30s"),
        (0, 30.1, "5m"),
        (0, 300, "5m"),
        (0, 301, "1h"),
        (0, 3601, "1h"),
        (1, 31, "5m"),
        (1, 3600, "1h"),
        (2, 86_400, "1h"),
    ],
)
def test_the_tier_of_an_attempt(counted_before: int, wanted_s: float, name: str) -> None:
    """Each attempt goes to the next tier, or to the smallest that is long enough.

    The last tier takes the rest.
    """
    assert choose(TIERS, counted_before=counted_before, wanted_s=wanted_s).name == name


@pytest.mark.parametrize(
    ("wanted_s", "jitter", "delay_s"),
    [
        (0, 0.0, 300),
        (0, 0.5, 330),
        (0, 1.0, 360),
        (299, 0.0, 300),
        (400, 0.0, 400),
        (400, 1.0, 480),
        (1e9, 0.0, 86_400),
        (1e9, 1.0, 103_680),
    ],
)
def test_the_delay_of_a_retry(wanted_s: float, jitter: float, delay_s: float) -> None:
    """A retry waits for the longer of tier and wanted delay, at most a day, plus up to a fifth."""
    assert retry_delay(Tier("5m", 300), wanted_s=wanted_s, jitter=jitter) == pytest.approx(delay_s)


@given(
    lengths=st.sets(st.integers(1, 100_000), min_size=1, max_size=6).map(sorted),
    counted_before=st.integers(0, 100),
    wanted_s=st.floats(0, 86_400),
    jitter=st.floats(0, 1),
)
def test_a_retry_is_never_early(
    lengths: list[int], counted_before: int, wanted_s: float, jitter: float
) -> None:
    """A task waits at least as long as wanted and as its tier, and at most a fifth longer."""
    tier = choose(
        tiers_of(f"{length}s" for length in lengths),
        counted_before=counted_before,
        wanted_s=wanted_s,
    )

    delay_s = retry_delay(tier, wanted_s=wanted_s, jitter=jitter)

    assert max(wanted_s, tier.delay_s) <= delay_s <= max(wanted_s, tier.delay_s) * 1.2 + 1e-6
    assert tier.delay_s >= min(wanted_s, lengths[-1])


def test_moved_tasks_come_back_spread_over_a_fifth_of_their_wait() -> None:
    """Moved tasks return spread over a fifth of the time that they wait.

    A million tasks that were moved in one hour must not return in one second.
    """
    failure, longest = Failure(ErrorClass.GUARD, "why"), Tier("1h", 3600.0)
    moves = [move_for_guard(failure, Spent(), number, "1/a", longest) for number in range(1000)]
    delays = {moved.delay_s for moved in moves}

    assert {(moved.failure, moved.reason, moved.key) for moved in moves} == {
        (failure, WaitReason.GUARD, "1/a")
    }
    assert len(delays) > 900
    assert min(delays) >= 3600
    assert max(delays) <= 3600 * 1.2
