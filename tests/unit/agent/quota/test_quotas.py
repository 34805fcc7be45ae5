"""The quotas that admission asks: by route and by tenant, several routes on one account."""

import asyncio

import pytest

from docllm.agent.quota.grants import Charge, DayCount, WaitingCall
from docllm.agent.quota.quotas import IDLE_S, Quotas, QuotaWait
from docllm.schemas.settings.quota import QuotaLimits
from tests.support.memory_quota import MemoryQuotaServer
from tests.support.quota_fleet import MovedClock

COST = Charge(tokens_in=100, tokens_out=0)
Limit = tuple[str, QuotaLimits] | None
ROUTES: dict[str, Limit] = {
    "fast": ("account", QuotaLimits(rpm=600)),
    "twin": ("account", QuotaLimits(rpm=600)),
    "local": ("other", QuotaLimits(in_flight=2)),
}
TENANTS = {"acme": ("tenant acme", QuotaLimits(in_flight=1))}


def quotas() -> Quotas:
    return Quotas(of_route=ROUTES.get, of_tenant=TENANTS.get)


def asks(count: int, tenant: str = "default") -> list[WaitingCall]:
    return [WaitingCall(charge=COST, tenant=tenant)] * count


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

    assert some.room("free", 0.0) is None
    taken = some.permit("free", COST, "default", 0.0)
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
    assert (some.room("fast", 0.0), some.room("twin", 0.0)) == (0, 0)
    assert some.quota_waits(0.0) == [
        QuotaWait(route=route, name="rpm", limit=600, agents=1, paused_s=0.0)
        for route in ("fast", "twin")
    ]

    clock.at_s = 0.5
    exchange(some, clock, server)

    assert some.room("fast", 0.5) == some.room("twin", 0.5) == 4
    assert some.permit("fast", COST, "default", 0.5) is not None
    assert some.room("twin", 0.5) == 3


def test_a_tenant_has_its_calls_at_once_over_all_routes() -> None:
    """A second call waits until the first has ended, whatever its route has room for."""
    some, clock = quotas(), MovedClock()
    server = MemoryQuotaServer(clock.now_s)
    for _ in range(4):
        some.set_waiting("local", asks(2, "acme"), clock.at_s)
        some.set_waiting("free", asks(2, "acme"), clock.at_s)
        exchange(some, clock, server)
        clock.at_s += 0.5
    first = some.permit("free", COST, "acme", clock.at_s)
    assert first is not None
    assert some.permit("local", COST, "acme", clock.at_s) is None
    assert some.room("local", clock.at_s) == 2

    some.note_ended(first, COST)

    assert some.permit("local", COST, "acme", clock.at_s) is not None


def test_tasks_that_are_ready_no_more_are_forgotten() -> None:
    """The tenant's and the account's waiting calls end with the route's."""
    some, clock = quotas(), MovedClock()
    server = MemoryQuotaServer(clock.now_s)
    some.set_waiting("local", asks(2, "acme"), 0.0)
    assert exchange(some, clock, server) == 2
    some.set_waiting("local", [], 0.0)
    exchange(some, clock, server)

    assert exchange(some, clock, server) == 0
    assert some.quota_waits(0.0) == []


@pytest.mark.parametrize("limits", [{}, {"local": ("new account", QuotaLimits(rpm=60))}])
def test_a_limit_that_is_removed_or_moved_is_asked_for_no_more(limits: dict[str, Limit]) -> None:
    """Otherwise the account's and the tenant's other users would wait for calls that never come."""
    of_route, of_tenant = dict(ROUTES), dict(TENANTS)
    some, clock = Quotas(of_route=of_route.get, of_tenant=of_tenant.get), MovedClock()
    server = MemoryQuotaServer(clock.now_s)
    some.set_waiting("local", asks(2, "acme"), 0.0)
    assert exchange(some, clock, server) == 2

    of_tenant.clear()
    of_route["local"] = limits.get("local")
    some.set_waiting("local", asks(2, "acme"), 0.0)
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
    routes = dict(ROUTES)
    some = Quotas(of_route=routes.get, of_tenant=TENANTS.get)
    some.set_waiting("local", asks(3), 0.0)
    (member,) = some.with_news(0.0)
    member.next_request(0.0)
    routes["local"] = ("other", QuotaLimits(in_flight=7))

    some.set_waiting("local", asks(3), 0.0)

    (again,) = some.with_news(0.0)
    assert again is member
    assert again.next_request(0.0).limits.in_flight == 7
