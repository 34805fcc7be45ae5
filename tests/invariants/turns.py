"""Turns: no lane and no tenant waits too long, and no tenant has more calls than its cap."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.invariants.evidence import Evidence

# How many of 21 tasks start from each lane while all have work.
TURNS = {"urgent": 16, "normal": 4, "bulk": 1}
LATE_S = 2.1  # seats of an agent that stood still may be given to others
# Seats are asked for every half second, so a tenant with a cap is passed once in a second at most.
ASKED_S = 1.0


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of waiting tasks: those of one tenant in one lane, for one route."""

    lane: str
    route: str
    tenant: str


@dataclass(frozen=True, slots=True)
class Taking:
    """An agent took tasks to claim. `waiting` are the kinds that it could have taken.

    `ahead` are those of which it took tasks since the last time, before slots were free for them.
    """

    program: str
    at_s: float
    waiting: frozenset[Kind]
    taken: tuple[Kind, ...]
    ahead: frozenset[Kind] = frozenset()


@dataclass(frozen=True, slots=True)
class Share:
    """A tenant's part beside others, and its most calls at once; None if it has no cap."""

    weight: float = 1.0
    cap: int | None = None


def lane_starved(run: "Evidence") -> list[str]:
    """While a lane has work for a route, so many tasks of other lanes at most go first."""

    def most(kind: Kind, routes: int) -> float:
        return (3 * sum(TURNS.values()) / TURNS[kind.lane] + 3) * routes

    return list(
        _passed(
            run,
            lambda kind: (kind.lane, kind.route),
            lambda kind, other: kind.route == other.route and kind.lane != other.lane,
            most,
        )
    )


def tenant_starved(run: "Evidence") -> list[str]:
    """While a tenant has work in a lane, others get only their part of the turns.

    New tenants go ahead of the round in three turns of four.
    """

    def rounds(tenant: str) -> float:
        return run.tenants.get(tenant, Share()).weight

    tenants = {kind.tenant for taking in run.takings for kind in taking.waiting}

    def most(kind: Kind, _routes: int) -> float:
        others = sum(ceil(rounds(tenant)) for tenant in tenants - {kind.tenant})
        return 4 * (ceil(1 / rounds(kind.tenant)) + 1) * others + 4

    return list(
        _passed(
            run,
            lambda kind: (kind.lane, kind.route, kind.tenant),
            lambda kind, other: (
                (kind.lane, kind.route) == (other.lane, other.route) and kind.tenant != other.tenant
            ),
            most,
        )
    )


def type_above_its_slots(run: "Evidence") -> list[str]:
    """An agent runs no more handlers of a type at once than the type has slots."""
    return [
        f"{most} handlers of {name} ran at once in an agent, which has {slots} slots for them"
        for name, (slots, most) in run.type_slots.items()
        if most > slots
    ]


def tenant_above_its_cap(run: "Evidence") -> list[str]:
    """A tenant has no more calls at once than its cap says.

    When Redis fails, agents keep to shares while others' calls end.
    """
    tenant_of = {task.id: task.tenant for task in run.tasks}
    changes: defaultdict[str, list[tuple[float, int, str]]] = defaultdict(list)
    for call in run.calls:
        tenant = tenant_of.get(call.task_id, "")
        program = "" if call.claim is None else call.claim.program
        agents = [agent for agent in run.agents.values() if agent.program == program]
        if (
            run.tenants.get(tenant, Share()).cap is not None
            and call.end_s is not None
            and not any(agent.stood_still(call.start_s - LATE_S, call.end_s) for agent in agents)
        ):
            changes[tenant] += [(call.start_s, 1, call.name), (call.end_s, -1, call.name)]
    odd = []
    for tenant, of_tenant in changes.items():
        cap, running = run.tenants[tenant].cap or 0, 0
        faults = run.quota is not None and run.quota.faults
        most = cap if not faults else 2 * cap + len(run.agents)
        for at_s, change, name in sorted(of_tenant):
            running += change
            if running > most:
                odd.append(f"{name} at {at_s:.3f}: {running} calls of {tenant}, {cap} are allowed")
    return odd


def _passed(
    run: "Evidence",
    group_of: Callable[[Kind], tuple[str, ...]],
    is_rival: Callable[[Kind, Kind], bool],
    most: Callable[[Kind, int], float],
) -> Iterator[str]:
    """Yield the groups of kinds that rivals passed too often while they waited all the time."""
    passed_s: dict[tuple[str, ...], float] = {}
    routes = len({kind.route for taking in run.takings for kind in taking.waiting})
    passed: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for taking in run.takings:
        of_program = passed[taking.program]
        served = {group_of(kind) for kind in (*taking.taken, *taking.ahead)}
        # Of a group, a kind without a cap, if there is one.
        kinds = sorted(
            taking.waiting, key=lambda kind: run.tenants.get(kind.tenant, Share()).cap or 0
        )
        waiting = {group_of(kind): kind for kind in reversed(kinds)}
        for group in of_program.keys() - waiting.keys() | served:
            del of_program[group]
        for group in waiting.keys() - served:
            kind = waiting[group]
            rivals = sum(is_rival(kind, other) for other in taking.taken)
            place = (taking.program, *group)
            is_capped = run.tenants.get(kind.tenant, Share()).cap is not None
            if not rivals or (is_capped and taking.at_s - passed_s.get(place, -1.0) < ASKED_S):
                continue
            of_program[group] += 1 if is_capped else rivals
            passed_s[place] = taking.at_s
            if of_program[group] > most(kind, routes):
                yield (
                    f"{'/'.join(group)} at {taking.at_s:.3f}: {of_program[group]} tasks of others "
                    f"went first in {taking.program}"
                )
                del of_program[group]
