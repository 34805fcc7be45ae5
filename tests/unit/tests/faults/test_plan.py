"""The plan of a fault run depends only on the seed, and is complete and within its time."""

from itertools import pairwise

import pytest

from tests.faults.plan import BEGIN_S, END_S, KINDS, draw
from tests.faults.site import AGENTS

EVERY = list(KINDS)


def test_there_are_many_kinds() -> None:
    """There are at least twenty kinds with distinct names."""
    assert len(KINDS) >= 20
    assert all(kind.name == name for name, kind in KINDS.items())


def test_a_seed_gives_one_plan() -> None:
    """The same seed gives the same plan, another seed another one."""
    assert draw(7, 10, EVERY) == draw(7, 10, EVERY)
    assert draw(7, 10, EVERY) != draw(8, 10, EVERY)


@pytest.mark.parametrize("seed", range(20))
def test_every_kind_comes_and_none_too_late(seed: int) -> None:
    """Ten minutes hold every kind, in order of time, between a quiet beginning and end."""
    plan = draw(seed, 10, EVERY)

    assert {fault.kind for fault in plan} == set(KINDS)
    assert all(first.at_s <= second.at_s for first, second in pairwise(plan))
    assert all(BEGIN_S <= fault.at_s <= 600 - END_S for fault in plan)
    assert all(fault.seat in AGENTS for fault in plan)


def test_a_long_run_has_more_of_the_frequent_kinds() -> None:
    """Two hours have hundreds of faults, and frequent kinds occur more often than rare ones."""
    kinds = [fault.kind for fault in draw(1, 120, EVERY)]

    assert len(kinds) > 300
    assert kinds.count("agent-kill") > kinds.count("offsets-deleted")


def test_a_fault_of_one_seat_is_planned_there() -> None:
    """A fault that only one agent can have is planned for that agent.

    For example, only one agent has a clock that jumps.
    """
    plan = draw(3, 60, ["agent-clock-back", "agent-kill"])

    assert {fault.seat for fault in plan if fault.kind == "agent-clock-back"} == {AGENTS[-1]}
    assert {fault.seat for fault in plan if fault.kind == "agent-kill"} == set(AGENTS)
