"""The quotas that admission asks: by route and by tenant, several routes on one account."""

import asyncio

import pytest

from docllm.agent.quota.estimate import CallSize
from docllm.agent.quota.grants import Charge, DayCount, LimitKind, LimitName, WaitingCall
from docllm.agent.quota.limit import Permit
from docllm.agent.quota.quotas import IDLE_S, Quotas
from docllm.schemas.agent_report import Reason
from docllm.schemas.codes import Code
from docllm.schemas.settings.quota import QuotaLimits
from tests.support.memory_quota import MemoryQuotaServer
from tests.support.quota_fleet import MovedClock

COST = Charge(tokens_in=100, tokens_out=0)
FREE, FAST, TWIN, LOCAL = (
    (LimitKind.ACCOUNT, route) for route in ("free", "fast", "twin", "local")
)
ACME = LimitKind.TENANT, "acme"
Found = dict[LimitName, tuple[str, QuotaLimits]]
LIMITS: Found = {
    FAST: ("account", QuotaLimits(rpm=600)),
    TWIN: ("account", QuotaLimits(rpm=600)),
    LOCAL: ("other", QuotaLimits(in_flight=2)),
    ACME: ("tenant acme", QuotaLimits(in_flight=1)),
    (LimitKind.SLOTS, "scan"): ("slots scan", QuotaLimits(in_flight=1)),
    (LimitKind.TYPE, "scan"): ("type scan", QuotaLimits(in_flight=1)),
    (LimitKind.NAMED, "crm"): ("limit crm", QuotaLimits(rpm=60)),
}


def quotas() -> Quotas:
    return Quotas(LIMITS.get)


def asks(count: int, *limits: LimitName) -> list[WaitingCall]:
    return [WaitingCall(charge=COST, limits=limits)] * count


def begun(some: Quotas, now_s: float, *names: LimitName) -> Permit | None:
    return some.permit(names, COST, CallSize(), now_s)


def exchange(some: Quotas, clock: MovedClock, server: MemoryQuotaServer) -> int:
    """Let the quotas exchange with the store; return how many did."""
    asking = list(some.with_news(clock.at_s))
    requests = [quota.next_request(clock.at_s) for quota in asking]
    answers = asyncio.run(server.store("a").exchange(requests))
    for quota, request, answer in zip(asking, requests, answers, strict=True):
        quota.apply_answer(request, answer, clock.at_s, clock.at_s)
    return len(asking)


def test_a_route_without_limits_has_no_quota() -> None:
    """The route's calls begin without a grant, and settle nothing."""
    some = quotas()
    some.set_waiting("free", asks(3), 0.0)

    assert some.room(FREE, 0.0) is None
    taken = begun(some, 0.0, FREE)
    assert taken is not None
    some.note_ended(taken, COST)
    assert list(some.with_news(0.0)) == []


def test_routes_of_one_account_share_its_limit() -> None:
    """Grants of the account serve whichever of its routes has a task."""
    some, clock = quotas(), MovedClock()
    server = MemoryQuotaServer(clock.now_s)
    some.set_waiting("fast", asks(3), 0.0)
    some.set_waiting("twin", asks(30), 0.0)
    assert exchange(some, clock, server) == 1
    assert (some.room(FAST, 0.0), some.room(TWIN, 0.0)) == (0, 0)
    assert some.reasons(0.0) == [
        Reason(Code.ROUTE_LIMITED, route, text="rpm", count=600, agents=1)
        for route in ("fast", "twin")
    ]

    clock.at_s = 0.5
    exchange(some, clock, server)

    assert some.room(FAST, 0.5) == some.room(TWIN, 0.5) == 4
    assert begun(some, 0.5, FAST) is not None
    assert some.room(TWIN, 0.5) == 3


def test_a_tenant_has_its_calls_at_once_over_all_routes() -> None:
    """A second call waits until the first has ended, whatever its route has room for."""
    some, clock = quotas(), MovedClock()
    server = MemoryQuotaServer(clock.now_s)
    for _ in range(4):
        some.set_waiting("local", asks(2, ACME), clock.at_s)
        some.set_waiting("free", asks(2, ACME), clock.at_s)
        exchange(some, clock, server)
        clock.at_s += 0.5
    first = begun(some, clock.at_s, FREE, ACME)
    assert first is not None
    assert begun(some, clock.at_s, LOCAL, ACME) is None
    assert some.room(LOCAL, clock.at_s) == 2

    some.note_ended(first, COST)

    assert begun(some, clock.at_s, LOCAL, ACME) is not None


@pytest.mark.parametrize(
    ("whose", "setting", "limit"),
    [
        (ACME, "in_flight", 1),
        ((LimitKind.TYPE, "scan"), "in_flight", 1),
        ((LimitKind.NAMED, "crm"), "rpm", 60),
    ],
)
def test_tasks_wait_for_the_limit_of_a_tenant_a_type_or_a_resource(
    whose: LimitName, setting: str, limit: int
) -> None:
    """A limit with room for all is no reason, nor is one for which nothing waits any more."""
    some, clock = quotas(), MovedClock()
    server = MemoryQuotaServer(clock.now_s)
    some.set_waiting("free", asks(20, whose), 0.0)
    exchange(some, clock, server)

    (wait,) = some.reasons(0.0)

    assert ((wait.kind, wait.name), wait.text, wait.count) == (whose, setting, limit)
    some.set_waiting("free", [], 0.0)
    assert some.reasons(0.0) == []


def test_tasks_that_are_ready_no_more_are_forgotten() -> None:
    """The tenant's and the account's waiting calls end with the route's."""
    some, clock = quotas(), MovedClock()
    server = MemoryQuotaServer(clock.now_s)
    some.set_waiting("local", asks(2, ACME), 0.0)
    assert exchange(some, clock, server) == 2
    some.set_waiting("local", [], 0.0)
    exchange(some, clock, server)

    assert exchange(some, clock, server) == 0
    assert some.reasons(0.0) == []


@pytest.mark.parametrize("limits", [{}, {LOCAL: ("new account", QuotaLimits(rpm=60))}])
def test_a_limit_that_is_removed_or_moved_is_asked_for_no_more(limits: Found) -> None:
    """Otherwise the account's and the tenant's other users would wait for calls that never come."""
    found = dict(LIMITS)
    some, clock = Quotas(found.get), MovedClock()
    server = MemoryQuotaServer(clock.now_s)
    some.set_waiting("local", asks(2, ACME), 0.0)
    assert exchange(some, clock, server) == 2

    del found[ACME], found[LOCAL]
    found |= limits
    some.set_waiting("local", asks(2, ACME), 0.0)
    exchange(some, clock, server)

    assert exchange(some, clock, server) == len(limits)


def test_the_days_calls_are_told() -> None:
    """The count of the group's own records goes to the store."""
    some = quotas()
    today = DayCount(day=20_000, calls=7)
    some.set_waiting("fast", asks(1), 0.0)
    some.note_used("fast", today)
    (member,) = some.with_news(0.0)

    assert member.next_request(0.0).used_today == today


def test_an_account_long_unused_is_forgotten_and_comes_back_with_new_numbers() -> None:
    """A request of the new member must not look like one that was answered before."""
    some, clock = quotas(), MovedClock()
    server = MemoryQuotaServer(clock.now_s)
    some.set_waiting("fast", asks(1), 0.0)
    (member,) = some.with_news(0.0)
    before = member.next_request(0.0).sequence
    some.set_waiting("fast", [], 0.0)
    exchange(some, clock, server)
    clock.at_s = IDLE_S + 1
    assert exchange(some, clock, server) == 0
    assert some.accepted_shares == {}

    some.set_waiting("fast", asks(1), clock.at_s)
    (member,) = some.with_news(clock.at_s)

    assert member.next_request(clock.at_s).sequence > before


def test_new_limits_hold_from_the_next_exchange() -> None:
    """Settings that are read again keep what runs."""
    found = dict(LIMITS)
    some = Quotas(found.get)
    some.set_waiting("local", asks(3), 0.0)
    (member,) = some.with_news(0.0)
    member.next_request(0.0)
    found[LOCAL] = ("other", QuotaLimits(in_flight=7))

    some.set_waiting("local", asks(3), 0.0)

    (again,) = some.with_news(0.0)
    assert again is member
    assert again.next_request(0.0).limits.in_flight == 7


def test_slots_of_one_agent_need_no_store() -> None:
    """One more attempt begins when one has ended; nothing is asked for."""
    some, scan = quotas(), (LimitKind.SLOTS, "scan")
    first = begun(some, 0.0, scan)
    assert first is not None
    assert begun(some, 0.0, scan) is None

    some.note_ended(first, COST)

    assert begun(some, 0.0, scan) is not None
    assert list(some.with_news(0.0)) == []


def test_nothing_is_taken_of_one_limit_while_another_has_no_room() -> None:
    """An attempt needs all of its limits at once."""
    some, scan = quotas(), (LimitKind.SLOTS, "scan")

    assert begun(some, 0.0, FAST, scan) is None

    assert some.room(scan, 0.0) == 1
