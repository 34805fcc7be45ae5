"""The share of an agent without Redis: shares add up to less than the limit."""

import asyncio

from docllm.agent.quota.grants import Charge, DayCount, QuotaRequest, WaitingCall
from docllm.agent.quota.share import SHARE_EVERY_S, ShareGrantStore
from docllm.schemas.settings.quota import QuotaLimits
from tests.support.quota_fleet import MovedClock

TASK = WaitingCall(charge=Charge(tokens_in=1, tokens_out=1))


def granted(share: ShareGrantStore, clock: MovedClock, seconds: int = 60, rpm: int = 600) -> int:
    """Return how many of endless tasks of an account with so many calls a minute are granted."""
    total = 0
    for sequence in range(1, round(seconds / SHARE_EVERY_S) + 1):
        clock.at_s += SHARE_EVERY_S
        request = QuotaRequest(
            key="key", limits=QuotaLimits(rpm=rpm), sequence=sequence, waiting=(TASK,) * 20
        )
        (answer,) = asyncio.run(share.exchange([request]))
        total += sum(answer.granted)
    return total


def test_a_share_is_that_of_the_partitions_with_caution() -> None:
    """A quarter of the partitions makes a fifth of the limit."""
    clock = MovedClock()

    assert 115 <= granted(ShareGrantStore(partitions=lambda: 0.25, clock=clock), clock) <= 120


def test_only_without_any_redis_all_partitions_are_the_whole_limit() -> None:
    """With Redis configured, other groups may use the account."""
    clock = MovedClock()

    assert (
        590
        <= granted(ShareGrantStore(partitions=lambda: 1.0, clock=clock, has_no_redis=True), clock)
        <= 600
    )
    assert 470 <= granted(ShareGrantStore(partitions=lambda: 1.0, clock=clock), clock) <= 480


def test_a_share_of_less_than_a_call_a_minute_makes_calls() -> None:
    """Two fifths of a call a minute are four calls in ten minutes."""
    clock = MovedClock()
    share = ShareGrantStore(partitions=lambda: 0.5, clock=clock)

    assert 3 <= granted(share, clock, seconds=600, rpm=1) <= 4


def test_an_agent_without_partitions_is_granted_nothing() -> None:
    """Such an agent's part of the limit is with the agents that have partitions."""
    clock = MovedClock()

    assert granted(ShareGrantStore(partitions=lambda: 0.0, clock=clock), clock) == 0


def test_the_calls_of_a_day_are_shared_too() -> None:
    """Each agent takes its part of what is left, as far as it knows."""
    clock, limits = MovedClock(), QuotaLimits(rpd=100)
    share = ShareGrantStore(partitions=lambda: 0.5, clock=clock)

    def ask(sequence: int, used: int | None) -> int:
        clock.at_s += 1
        today = None if used is None else DayCount(day=1, calls=used)
        request = QuotaRequest(
            key="key", limits=limits, sequence=sequence, waiting=(TASK,) * 60, used_today=today
        )
        (answer,) = asyncio.run(share.exchange([request]))
        return sum(answer.granted)

    used_after = (None, 0, 0, 90, 100)
    assert [ask(number, used) for number, used in enumerate(used_after)] == [0, 40, 0, 4, 0]


def test_a_recount_keeps_the_running_calls_of_a_share() -> None:
    """The agent's own part of the day is smaller than the rest by its running calls."""
    share = ShareGrantStore(partitions=lambda: 1.0, clock=MovedClock())
    request = QuotaRequest(
        key="key",
        limits=QuotaLimits(rpd=100),
        sequence=1,
        running=4,
        waiting=(TASK,) * 20,
        used_today=DayCount(day=1, calls=80),
    )

    (answer,) = asyncio.run(share.exchange([request]))

    assert (sum(answer.granted), answer.binding) == (20 * 0.8 - 4, "rpd")


def test_a_share_begins_empty_with_the_scale_that_was_known() -> None:
    """What the provider refused is not forgotten with Redis."""
    clock = MovedClock()
    share = ShareGrantStore(partitions=lambda: 1.0, clock=clock, has_no_redis=True)
    granted(share, clock, 5)
    share.begin({"key": 0.5})
    request = QuotaRequest(key="key", limits=QuotaLimits(rpm=600), sequence=1, waiting=(TASK,) * 20)

    (answer,) = asyncio.run(share.exchange([request]))

    assert (sum(answer.granted), answer.accepted_share) == (0, 0.5)


def test_each_agent_has_a_seat() -> None:
    """However small its share, an agent with tasks does not stand still."""
    clock = MovedClock()
    share = ShareGrantStore(partitions=lambda: 0.01, clock=clock)
    for sequence in (1, 2, 3):
        request = QuotaRequest(
            key="key", limits=QuotaLimits(in_flight=20), sequence=sequence, waiting=(TASK,) * 20
        )
        (answer,) = asyncio.run(share.exchange([request]))
        clock.at_s += 0.5

    assert answer.seats == 1
