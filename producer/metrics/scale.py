"""Computes how many agents a group can use, for an autoscaler.

Pure. Lag alone is misleading: records on retry topics wait by design, a provider's limits keep only
a certain number of agents busy, and during an outage more agents finish no more tasks. So the
number is what the work needs, or the lowest bound if that is less. While more agents would only
wait, the present number stays.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, floor, inf

from docllm.schemas.settings.quota import NO_LIMITS, QuotaLimits

USUAL_TASK_S = 5.0  # assumed duration of a task before any has ended
# Kubernetes ignores a difference of up to a tenth, so a request for one more agent could be ignored
# for ever.
TOLERANCE = 0.1
MINUTE_S = 60.0


class ScaleBound(StrEnum):
    """What decides the number of agents."""

    IDLE = "idle"  # nothing is to be done
    BUS = "bus"  # the bus does not answer: nobody knows what waits in the inbox
    CLOSED = "closed"  # routes with work take no calls: more agents would finish nothing
    WAITS = "waits"  # work waits for its hours, a guard or a lock
    NEED = "need"
    QUOTA = "quota"  # the providers' limits that a person set keep no more agents busy
    LEARNED = "learned"  # the providers refused more calls than these agents make
    PARTITIONS = "partitions"  # a further agent would read nothing
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAccount:
    """An account of a provider, with the limits that a person set.

    `learned` is how many calls at once the agents found that it takes; None if it has refused none.
    """

    limits: QuotaLimits = NO_LIMITS
    learned: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleLimits:
    """What a person wants: so many agents at least and at most, and work done in `target_s`."""

    min_agents: int = 0
    max_agents: int = 100
    target_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The work of a group, and the agents that do it.

    - `waiting` counts tasks that are due or run, and records of the inbox. `unfinished` are all
      open tasks. `waits_on_purpose`: some wait for a guard, hours, or a lock.
    - `agents` are alive and have `slots` each. `busy` slots end `ended_per_s` tasks. The oldest
      attempt that runs is `oldest_s` old.
    - `partitions` is None while the bus does not answer.
    - `closed_routes` of the `routes` that have work take no calls.
    - `accounts` are those of the routes with work. `tokens_in` and `tokens_out` are those of a
      usual task, 0 if unknown.
    """

    waiting: int
    unfinished: int
    agents: int
    slots: int
    busy: int = 0
    ended_per_s: float = 0.0
    oldest_s: float = 0.0
    partitions: int | None = None
    routes: int = 0
    closed_routes: int = 0
    waits_on_purpose: bool = False
    accounts: Collection[ProviderAccount] = ()
    tokens_in: float = 0.0
    tokens_out: float = 0.0

    @property
    def task_s(self) -> float:
        """How long a task takes; a guess until one has ended."""
        if self.busy and self.ended_per_s:
            return self.busy / self.ended_per_s
        return max(USUAL_TASK_S, self.oldest_s)

    @property
    def has_room(self) -> bool:
        """Whether most slots of the agents are free, though work waits."""
        return 2 * self.busy < self.agents * self.slots


@dataclass(frozen=True, slots=True)
class Scale:
    """How many agents are useful, and why.

    A number is None if it sets no bound.
    """

    desired: int
    because: ScaleBound
    need: int
    quota: int | None
    partitions: int | None
    learned: int | None = None

    def as_json(self) -> dict[str, object]:
        """Return the answer to a program."""
        return {
            "version": 1,
            "desired_agents": self.desired,
            "because": self.because,
            "need": self.need,
            "quota": self.quota,
            "learned": self.learned,
            "partitions": self.partitions,
        }


def scale(load: Workload, limits: ScaleLimits) -> Scale:
    """Return how many agents a group can use now."""
    need = _agents_needed(load, limits)
    quota = _agents_fed(load)
    learned = _agents_at_learned_limit(load)
    others = {
        ScaleBound.QUOTA: quota,
        ScaleBound.LEARNED: learned,
        ScaleBound.PARTITIONS: load.partitions,
        ScaleBound.MAX: limits.max_agents,
    }
    ceilings = {bound: agents for bound, agents in others.items() if agents is not None}
    desired, because = _desired(load, need, ceilings)
    if because in _WITHOUT_CEILING:
        desired = min(desired, limits.max_agents)
    if desired < limits.min_agents:
        desired = limits.min_agents
        because = because if because in _WITHOUT_CEILING else ScaleBound.MIN
    return Scale(desired, because, need, quota, load.partitions, learned)


_WITHOUT_CEILING = (ScaleBound.IDLE, ScaleBound.BUS, ScaleBound.CLOSED, ScaleBound.WAITS)


def _desired(
    load: Workload, need: int, ceilings: Mapping[ScaleBound, int]
) -> tuple[int, ScaleBound]:
    if load.partitions is None:
        return load.agents, ScaleBound.BUS
    if not need:
        return 0, ScaleBound.IDLE
    if load.closed_routes and (load.closed_routes == load.routes or load.has_room):
        return max(load.agents, 1), ScaleBound.CLOSED
    because = min(ceilings, key=lambda bound: ceilings[bound])
    desired = ceilings[because]
    if need <= desired:
        desired, because = _noticeable(need, load.agents, desired), ScaleBound.NEED
    if load.waits_on_purpose and load.has_room and desired > load.agents:
        # How many agents the waiting tasks need can only be measured once the wait ends.
        return max(load.agents, 1), ScaleBound.WAITS
    return desired, because


def _agents_needed(load: Workload, limits: ScaleLimits) -> int:
    """Return how many agents finish the work in time.

    It is at least one while tasks are open, because an agent must call up waiting tasks. With no
    agent alive it is one: that agent shows how long tasks take and what the providers accept.
    """
    if not load.waiting and not load.unfinished:
        return 0
    if not load.agents:
        return 1
    return max(1, ceil(load.waiting * load.task_s / (load.slots * limits.target_s)))


def _agents_fed(load: Workload) -> int | None:
    """Return how many agents the set limits keep busy; None if an account has no limit."""
    slots = sum(_slots_fed(account.limits, load) for account in load.accounts)
    return None if not load.accounts or slots == inf else max(1, ceil(slots / load.slots))


def _agents_at_learned_limit(load: Workload) -> int | None:
    """Return how many agents the learned limits keep busy; None if no limit was learned.

    Learned limits vary constantly, so the present number of agents is kept if it is within the
    tolerance.
    """
    if all(account.learned is None for account in load.accounts):
        return None
    slots = sum(
        min(_slots_fed(account.limits, load), inf if account.learned is None else account.learned)
        for account in load.accounts
    )
    if slots == inf:
        return None
    fewest_agents, most_agents = (
        max(1, ceil(slots * part / load.slots)) for part in (1 - TOLERANCE, 1 + TOLERANCE)
    )
    return min(max(load.agents, fewest_agents), most_agents)


def _slots_fed(limits: QuotaLimits, load: Workload) -> float:
    """Return how many slots an account keeps busy.

    A daily limit is ignored: it matters only once it is used up.
    """
    tokens = load.tokens_in + load.tokens_out
    per_task = {"rpm": 1.0, "tpm": tokens, "itpm": load.tokens_in, "otpm": load.tokens_out}
    slots = [float(limits.in_flight)] if limits.in_flight is not None else []
    slots += [
        limits.given[name] / used / MINUTE_S * load.task_s
        for name, used in per_task.items()
        if name in limits.given and used
    ]
    return min(slots, default=inf)


def _noticeable(desired: int, present: int, ceiling: int) -> int:
    """Return a number that differs enough from the present one for an autoscaler to act on it."""
    noticed = floor(present * (1 + TOLERANCE)) + 1
    return min(noticed, ceiling) if present < desired < noticed else desired
