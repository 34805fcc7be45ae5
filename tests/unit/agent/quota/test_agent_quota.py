"""One agent's grants in hand: used once, given back when they are late, settled when calls end."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest

from docllm.agent.quota.agent_quota import GRANT_LIVES_S, OWN_LIVES_S, SEATS_LIVE_S, AgentQuota
from docllm.agent.quota.grants import (
    Charge,
    DayCount,
    QuotaAnswer,
    QuotaRequest,
    WaitingCall,
)
from docllm.schemas.settings.quota import QuotaLimits

LIMITS = QuotaLimits(rpm=600, tpm=600_000)
ANSWER = QuotaAnswer(
    granted=(), seats=None, paused_s=0.0, accepted_share=1.0, agents=2, binding="tpm"
)
NOTHING = Charge(requests=0)


def charge(tokens_in: int, tokens_out: int = 0) -> Charge:
    return Charge(tokens_in=tokens_in, tokens_out=tokens_out)


def member(limits: QuotaLimits = LIMITS, *charges: Charge) -> AgentQuota:
    """Return a quota whose tasks with these charges are ready."""
    made = AgentQuota(key="key", limits=limits, sequences=count(1))
    made.set_waiting("route", [WaitingCall(charge=one) for one in charges])
    return made


def exchange(
    one: AgentQuota, granted: int, now_s: float, answer: QuotaAnswer = ANSWER
) -> QuotaRequest:
    """Let the store grant the first waiting calls; return the request."""
    request = one.next_request(now_s)
    flags = tuple(number < granted for number in range(len(request.waiting)))
    one.apply_answer(request, replace(answer, granted=flags), now_s, now_s)
    return request


def test_a_grant_is_used_once() -> None:
    """Before a grant nothing begins; each grant lets one call begin."""
    one = member(LIMITS, charge(100), charge(200), charge(300))
    assert one.begin_call(charge(100), 0.0) is None

    exchange(one, 2, 0.0)

    assert one.room(0.1) == 2
    assert one.begin_call(charge(200), 0.1) is not None
    assert one.begin_call(charge(100), 0.1) is not None
    assert one.begin_call(charge(100), 0.1) is None
    assert one.next_request(0.2).refund == NOTHING


def test_a_call_takes_the_smallest_grant_that_covers_it() -> None:
    """A small call leaves the large grant to the call that it was asked for."""
    one = member(QuotaLimits(tpm=600_000), charge(3000), charge(100))
    exchange(one, 2, 0.0)

    assert one.begin_call(charge(100), 0.1) is not None
    assert one.begin_call(charge(3000), 0.1) is not None


def test_granted_calls_begin_one_after_another() -> None:
    """A call that comes later than its start begins at once."""
    one = member(LIMITS, *[charge(100)] * 4)
    exchange(one, 4, 1.0, replace(ANSWER, starts_in_s=0.2, starts_every_s=0.1))

    starts = [one.begin_call(charge(100), now_s) for now_s in (1.0, 1.25, 1.5, 1.1)]

    assert starts == pytest.approx([1.2, 1.3, 1.5, 1.5])


def test_calls_that_are_granted_are_not_asked_for_again() -> None:
    """Grants in hand are told, and only the other tasks are asked for."""
    one = member(LIMITS, charge(100), charge(200), charge(300))
    assert exchange(one, 2, 0.0).waiting == tuple(
        WaitingCall(charge=charge(n)) for n in (100, 200, 300)
    )

    request = one.next_request(0.5)

    assert (request.running, request.in_hand) == (0, 2)
    assert request.waiting == (WaitingCall(charge=charge(300)),)


def test_a_late_grant_is_given_back_once() -> None:
    """Whoever was frozen for a while calls nobody with what it was granted before."""
    one = member(LIMITS, charge(100, 50))
    exchange(one, 1, 0.0)

    assert one.begin_call(charge(100, 50), GRANT_LIVES_S) is None
    refunds = [one.next_request(GRANT_LIVES_S + number).refund for number in range(2)]
    assert refunds == [Charge(requests=1, tokens_in=100, tokens_out=50), NOTHING]


def test_an_answer_that_comes_late_grants_nothing() -> None:
    """A late answer's grants are given back at once."""
    one = member(LIMITS, charge(100))
    request = one.next_request(0.0)
    one.apply_answer(request, replace(ANSWER, granted=(True,)), 0.0, 5.0)

    assert one.room(5.0) == 0
    assert one.next_request(5.0).refund == Charge(requests=1, tokens_in=100)


def test_a_call_is_settled_when_it_ends() -> None:
    """What it did not need is given back, what it needed more is owed."""
    one = member(LIMITS, charge(100, 50), charge(100, 50), charge(100, 50))
    exchange(one, 3, 0.0)
    for _ in range(3):
        assert one.begin_call(charge(100, 50), 0.1) is not None

    one.note_ended(charge(100, 50), charge(110, 10))
    one.note_ended(charge(100, 50), None)
    one.note_ended(charge(100, 50), charge(0))
    one.note_reply(refused=True, retry_after_s=3.0, remaining=0.1)
    request = one.next_request(0.5)

    assert request.refund == Charge(requests=1, tokens_in=190, tokens_out=140)
    assert (request.refused, request.retry_after_s, request.remaining) == (1, 3.0, 0.1)
    assert request.running == 0
    again = one.next_request(1.0)
    assert (again.refund, again.refused, again.remaining) == (NOTHING, 0, None)


def test_an_estimate_may_grow_a_little_after_the_grant() -> None:
    """The difference is a debt; a much larger call needs several grants, or waits."""
    one = member(LIMITS, *[charge(1000)] * 3)
    exchange(one, 3, 0.0)

    assert one.begin_call(charge(1100), 0.1) is not None
    assert one.begin_call(charge(2100), 0.1) is not None
    assert one.begin_call(charge(100), 0.1) is None
    assert one.next_request(0.2).refund == Charge(requests=1, tokens_in=-200)


def test_a_pause_holds_grants_back() -> None:
    """While the provider refuses calls, nothing begins."""
    one = member(LIMITS, charge(100))
    exchange(one, 1, 0.0, replace(ANSWER, paused_s=1.0))

    assert one.begin_call(charge(100), 0.9) is None
    assert one.paused_s(0.5) == 0.5
    assert one.begin_call(charge(100), 1.1) is not None


def test_a_seat_is_taken_again_until_its_lease_ends() -> None:
    """A limit of calls at once needs no grant for each call."""
    one = member(QuotaLimits(in_flight=10), *[charge(100)] * 5)
    exchange(one, 5, 0.0, replace(ANSWER, seats=2))
    assert [bool(one.begin_call(charge(100), 0.1)) for _ in range(3)] == [True, True, False]

    one.note_ended(charge(100), charge(100))

    assert one.begin_call(charge(100), 0.2) is not None
    one.note_ended(charge(100), charge(100))
    assert one.room(SEATS_LIVE_S) == 0


def test_a_seat_without_a_call_waits_for_the_answer_to_a_request() -> None:
    """The store may lease it to another agent at once; a running call's seat stays."""
    one = member(QuotaLimits(in_flight=10), *[charge(100)] * 5)
    exchange(one, 5, 0.0, replace(ANSWER, seats=2))
    assert one.begin_call(charge(100), 0.1) is not None

    one.next_request(0.5)

    assert one.begin_call(charge(100), 0.5) is None
    one.note_ended(charge(100), charge(100))
    assert one.begin_call(charge(100), 0.5) is not None


def test_calls_that_ended_lately_are_told() -> None:
    """As many calls as in the last two requests will probably end before the next one."""
    one = member(LIMITS, *[charge(100)] * 3)
    exchange(one, 3, 0.0)
    for now_s in (0.1, 0.6, 0.7):
        assert one.begin_call(charge(100), now_s) is not None
        one.note_ended(charge(100), charge(100))
        if now_s < 0.7:
            one.next_request(now_s)

    assert [one.next_request(now_s).ends for now_s in (1.1, 1.2, 1.3)] == [2, 1, 0]


def test_users_of_an_account_take_turns() -> None:
    """Two routes of one account: neither waits until the other has nothing to ask."""
    one = member(LIMITS, charge(1), charge(2))
    one.set_waiting("other", [WaitingCall(charge=charge(8)), WaitingCall(charge=charge(9))])

    assert [ask.charge.tokens_in for ask in one.next_request(0.0).waiting] == [1, 8, 2, 9]
    assert len(member(LIMITS, *[charge(1)] * 200).next_request(0.0).waiting) == 64


def test_what_the_share_granted_lately_is_reported_to_the_store() -> None:
    """The store may have granted the same to others in these seconds."""
    one = member(LIMITS, *[charge(100)] * 9)
    for now_s in (0.0, OWN_LIVES_S):
        request = one.next_request(now_s)
        granted = tuple(number < 3 for number in range(len(request.waiting)))
        one.apply_answer(request, replace(ANSWER, granted=granted), now_s, now_s, by_share=True)
        for _ in range(3):
            assert one.begin_call(charge(100), now_s) is not None

    exchange(one, 0, OWN_LIVES_S + 0.5)

    assert one.next_request(OWN_LIVES_S + 0.6).refund == Charge(requests=-3, tokens_in=-300)


def worth(one: AgentQuota, moments: Sequence[float]) -> list[bool]:
    """Return whether there is something to tell at some moments, and tell it."""
    told = []
    for now_s in moments:
        told.append(one.has_news(now_s))
        if told[-1]:
            one.next_request(now_s)
    return told


def test_the_calls_of_the_day_are_told_back() -> None:
    """A store that lost its memory gets it from the agents."""
    one, today = member(LIMITS, charge(100)), DayCount(day=20_000, calls=7)
    assert exchange(one, 0, 0.0, replace(ANSWER, today=today)).told_today is None

    assert exchange(one, 0, 0.5).told_today == today


def test_what_the_share_granted_is_counted_for_the_day_once() -> None:
    """Of these calls, the group's records leave out at most those that run.

    Of the first grants, one is not used.
    """
    one = member(QuotaLimits(rpd=100), *[charge(1)] * 9)
    for now_s in (0.0, 10.0):
        request = one.next_request(now_s)
        granted = (True,) * 4 + (False,) * (len(request.waiting) - 4)
        one.apply_answer(request, replace(ANSWER, granted=granted), now_s, now_s, by_share=True)
        assert all(one.begin_call(charge(1), now_s) is not None for _ in range(4 if now_s else 3))
        assert (request.uncounted, request.unrecorded) == (0, 0)
    for _ in range(5):
        one.note_ended(charge(1), charge(1))
    one.note_used(DayCount(day=1, calls=5))

    exchange(one, 0, 20.0)
    request = exchange(one, 0, 20.5)

    assert (request.uncounted, request.unrecorded) == (7, 2)
    assert one.next_request(21.0).uncounted == 0


def test_an_end_is_told_once() -> None:
    """An agent without tasks is silent after it has said so."""
    one = member(LIMITS, charge(100))
    assert worth(one, [0.0, 0.5]) == [True, True]
    one.set_waiting("route", [])

    assert worth(one, [1.0, 1.5, 2.0]) == [True, False, False]
