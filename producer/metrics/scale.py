"""How many agents a group can use, for whoever starts and stops them. Pure.

Lag alone misleads: records of retry topics wait by design, a provider's limits feed only so many
agents, and in an outage more agents finish nothing. So the number follows what binds.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, floor, inf

from schemas.settings.quota import QuotaLimits

USUAL_TASK_S = 5.0  # while nothing is known of them
# Kubernetes changes nothing for a difference of a tenth or less: one agent more would never come.
TOLERANCE = 0.1
MINUTE_S = 60.0


class Bound(StrEnum):
    """What decides the number of agents."""

    IDLE = "idle"  # nothing is to be done
    CLOSED = "closed"  # no route with work takes calls: more agents would finish nothing
    NEED = "need"
    QUOTA = "quota"  # the limits of the providers feed no more
    PARTITIONS = "partitions"  # a further agent would read nothing
    LEAST = "min"
    MOST = "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleLimits:
    """What a person wants: so many agents at least and at most, and work done in `target_s`."""

    least: int = 0
    most: int = 100
    target_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a group has to do, and what does it.

    `waiting` counts tasks that are due or run, and records of the inbox. `unfinished` are all open
    tasks. `agents` are alive and have `slots` each. `busy` slots end `ended_per_s` tasks; both are
    of the last minute. `partitions` is None while the bus does not answer. `closed` tells that no
    route with work takes calls. `limits` are those of the accounts that the tasks can use, None if
    one of them has none. `tokens_in` and `tokens_out` are those of a usual task, 0 if unknown.
    """

    waiting: int
    unfinished: int
    agents: int
    slots: int
    busy: int = 0
    ended_per_s: float = 0.0
    partitions: int | None = None
    closed: bool = False
    limits: Collection[QuotaLimits] | None = None
    tokens_in: float = 0.0
    tokens_out: float = 0.0


@dataclass(frozen=True, slots=True)
class Scale:
    """How many agents are useful, and why; what is None binds nothing."""

    desired: int
    because: Bound
    need: int
    quota: int | None
    partitions: int | None

    def as_json(self) -> dict[str, object]:
        """Return the answer to a program."""
        return {
            "version": 1,
            "desired_agents": self.desired,
            "because": self.because,
            "need": self.need,
            "quota": self.quota,
            "partitions": self.partitions,
        }


def scale(load: Workload, wanted: ScaleLimits) -> Scale:
    """Return how many agents a group can use now."""
    task_s = load.busy / load.ended_per_s if load.busy and load.ended_per_s else USUAL_TASK_S
    need, quota = _need(load, wanted, task_s), _quota(load, task_s)

    def found(desired: int, because: Bound) -> Scale:
        return Scale(desired, because, need, quota, load.partitions)

    if not load.waiting and not load.unfinished:
        return found(wanted.least, Bound.IDLE)
    if load.closed:
        return found(max(load.agents, wanted.least, 1), Bound.CLOSED)
    others = {Bound.QUOTA: quota, Bound.PARTITIONS: load.partitions, Bound.MOST: wanted.most}
    ceilings = {bound: agents for bound, agents in others.items() if agents is not None}
    because = min(ceilings, key=lambda bound: ceilings[bound])
    if need <= ceilings[because]:
        desired, because = _noticed(need, load.agents, ceilings[because]), Bound.NEED
    else:
        desired = ceilings[because]
    return found(wanted.least, Bound.LEAST) if desired < wanted.least else found(desired, because)


def _need(load: Workload, wanted: ScaleLimits, task_s: float) -> int:
    """Return how many agents do the work in time; at least one, to call up what will be due.

    Until agents have shown how long tasks take, one is enough.
    """
    if not load.agents and not load.ended_per_s:
        return 1
    return max(1, ceil(load.waiting * task_s / (load.slots * wanted.target_s)))


def _quota(load: Workload, task_s: float) -> int | None:
    """Return how many agents the accounts keep busy; None if some account has no known limit."""
    if load.limits is None:
        return None
    fed = [_slots_fed(limits, load, task_s) for limits in load.limits]
    return None if inf in fed else max(1, ceil(sum(fed) / load.slots))


def _slots_fed(limits: QuotaLimits, load: Workload, task_s: float) -> float:
    """Return how many slots an account keeps busy.

    A limit of a day binds at its end only, so it says nothing of the present.
    """
    tokens = load.tokens_in + load.tokens_out
    per_task = {"rpm": 1.0, "tpm": tokens, "itpm": load.tokens_in, "otpm": load.tokens_out}
    slots = [float(limits.in_flight)] if limits.in_flight is not None else []
    slots += [
        limits.given[name] / used / MINUTE_S * task_s
        for name, used in per_task.items()
        if name in limits.given and used
    ]
    return min(slots, default=inf)


def _noticed(desired: int, present: int, ceiling: int) -> int:
    """Return a number that an autoscaler does not take for the present one."""
    noticed = floor(present * (1 + TOLERANCE)) + 1
    return min(noticed, ceiling) if present < desired < noticed else desired
