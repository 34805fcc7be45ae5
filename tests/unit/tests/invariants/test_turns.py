"""Turns of lanes and tenants, judged by what agents took while others waited."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from docllm.schemas.task.states import Status
from tests.invariants.evidence import Call, Evidence, Quota, Task
from tests.invariants.happened import Claim, Incarnation
from tests.invariants.turns import (
    Kind,
    Share,
    Taking,
    lane_starved,
    tenant_above_its_cap,
    tenant_starved,
)

URGENT, BULK = (Kind(lane, "r", "big") for lane in ("urgent", "bulk"))
BIG, SMALL = (Kind("normal", "r", tenant) for tenant in ("big", "small"))
NOTHING = Evidence(loaded=frozenset(), tasks=())


def run(*taken: Kind | None, waiting: Sequence[Kind]) -> Evidence:
    """Return a run in which these kinds waited, and of which these were taken one by one."""
    takings = [
        Taking("agent-1", number, frozenset(waiting), () if kind is None else (kind,))
        for number, kind in enumerate(taken)
    ]
    return replace(NOTHING, takings=takings)


def test_a_task_that_is_taken_before_a_slot_is_free_has_had_its_turn() -> None:
    """Otherwise a tenant would seem to starve whose tasks all begin so."""
    taking = Taking("agent-1", 0.0, frozenset([BIG, SMALL]), (BIG,))
    starved = [replace(taking, at_s=number) for number in range(40)]
    served = [
        replace(one, ahead=frozenset([SMALL])) if one.at_s % 8 == 0 else one for one in starved
    ]

    assert tenant_starved(replace(NOTHING, takings=starved)) != []
    assert tenant_starved(replace(NOTHING, takings=served)) == []


def test_a_lane_starves_if_others_always_go_first() -> None:
    """One of 21 tasks may be of the bulk lane, and must be within three times that."""
    waiting = [URGENT, BULK]

    assert lane_starved(run(*[URGENT] * 80, waiting=waiting)) != []
    assert lane_starved(run(*([*[URGENT] * 60, BULK] * 3), waiting=waiting)) == []
    assert lane_starved(run(*[BULK] * 8, waiting=waiting)) != []


def test_a_lane_without_work_or_without_room_does_not_starve() -> None:
    """A lane that waits while nothing is taken does not starve either."""
    assert lane_starved(run(*[URGENT] * 80, waiting=[URGENT])) == []
    assert lane_starved(run(*[None] * 80, waiting=[URGENT, BULK])) == []
    other = replace(BULK, route="other")
    assert lane_starved(run(*[URGENT] * 80, waiting=[URGENT, other])) == []


@pytest.mark.parametrize(("weight", "most"), [(1.0, 12), (0.5, 16), (3.0, 12)])
def test_a_tenant_starves_if_others_get_more_than_their_part(weight: float, most: int) -> None:
    """The others' part depends on the tenant's own weight."""
    tenants = {"small": Share(weight=weight)}
    passed = [run(*[BIG] * count, waiting=[BIG, SMALL]) for count in (most, most + 1)]

    found = [tenant_starved(replace(one, tenants=tenants)) != [] for one in passed]

    assert found == [False, True]
    assert tenant_starved(run(*([BIG] * 4 + [SMALL]) * 5, waiting=[BIG, SMALL])) == []


def test_a_tenant_with_a_cap_is_passed_once_in_a_second_at_most() -> None:
    """Seats are asked for once in a second; tasks that end at once take no seat."""
    tenants = {"small": Share(cap=1)}
    slow = run(*[BIG] * 14, waiting=[BIG, SMALL])
    fast = [replace(taking, at_s=taking.at_s / 2) for taking in slow.takings]

    assert tenant_starved(replace(slow, tenants=tenants)) != []
    assert tenant_starved(replace(slow, tenants=tenants, takings=fast)) == []


def capped(times_s: Sequence[float]) -> Evidence:
    """Return a run with calls of one tenant, each three seconds long."""
    claim = Claim("agent-1", Status.PROCESSING, 1)
    calls = [Call("b/1", at_s, at_s + 3, 200, task_id=7, claim=claim) for at_s in times_s]
    tasks = [Task(7, "b/1", int(Status.SUCCEEDED), tenant="small")]
    return replace(NOTHING, tasks=tasks, calls=calls, tenants={"small": Share(cap=1)})


def test_calls_of_a_tenant_are_counted() -> None:
    """Without Redis shares may add up to more, and a frozen agent was taken for lost."""
    above = capped([0.0, 1.0])
    frozen = Incarnation(1, "agent-1", stalls=[(1.0, 9.0)])

    assert tenant_above_its_cap(above) != []
    assert tenant_above_its_cap(capped([0.0, 3.0])) == []
    assert tenant_above_its_cap(replace(above, tenants={"small": Share()})) == []
    assert tenant_above_its_cap(replace(above, agents={1: frozen})) == []
    assert tenant_above_its_cap(replace(above, quota=Quota(route="r", faults=1))) == []
