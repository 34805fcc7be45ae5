"""A seed's plan: the size of the run, its troubles, and the times of its events.

Most troubles are off in most runs.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from docllm.schemas.settings.quota import TenantConfig
from tests.simulation.mishaps import MISJUDGED, UNDECODABLE, UNREADABLE
from tests.simulation.points import POINTS

# Chances while there are faults. A run turns each on with the probability in front.
_CHANCES = {
    "busy": (0.3, 0.05),
    "lost_ack": (0.3, 0.05),
    "answer_lost": (0.4, 0.1),
    "commit_fails": (0.3, 0.3),
    "commit_unheard": (0.3, 0.3),
    "zombie_commits": (0.3, 1.0),
    "read_again": (0.3, 0.05),
    "read_skipped": (0.2, 0.3),
    "send_fails": (0.3, 0.3),
    "report_lost": (0.4, 0.3),
    "sent_twice": (0.4, 0.2),
    "llm_500": (0.2, 0.2),
    "llm_503": (0.2, 0.2),
    "llm_429": (0.3, 0.2),
    "llm_busy": (0.1, 0.2),
    "llm_broke": (0.1, 0.1),
    "llm_locked": (0.1, 0.1),
    "llm_cut": (0.2, 0.2),
    "llm_unreachable": (0.1, 0.1),
    "llm_hangs": (0.2, 0.05),
    "llm_bad": (0.1, 0.1),
}
_SLOW_S = {"database": (0.2, 3.0), "broker": (0.2, 3.0), "publish": (0.2, 15.0), "llm": (0.5, 19.0)}
# Events: the probability that a run has them at all, and their highest number.
_EVENTS = {
    "kill": (0.4, 3),
    "crash": (0.5, 3),
    "freeze": (0.5, 2),
    "stall_loop": (0.3, 2),
    "stall_beat": (0.4, 2),
    "drain": (0.3, 2),
    "start": (0.2, 2),
    "shuffle": (0.4, 5),
    "evict": (0.4, 3),
    "zombie": (0.4, 2),
    "database_away": (0.2, 2),
    "database_clock": (0.15, 2),
    "agent_clock": (0.15, 2),
    "broker_away": (0.2, 2),
    "llm_away": (0.15, 1),
    "outage": (0.5, 2),
    "refusal": (0.3, 2),
    "resume": (0.15, 2),
    "garbage": (0.3, 6),
    "copies": (0.4, 3),
    "cancel": (0.1, 1),
    "reopen": (0.1, 1),
    "replay": (0.3, 2),
    "open_guards": (0.15, 2),
    "kill_load": (0.2, 2),
    "kill_replay": (0.2, 2),
    "retier": (0.08, 1),
    "grow": (0.08, 1),
    "lose": (0.1, 2),
    "make_again": (0.06, 1),
    "forget_offsets": (0.1, 1),
}
_OF_DATES = {"database_clock", "agent_clock", "redis_clock", "redis_restored"}
_RECORDS_LOST = {"lose", "forget_offsets", "make_again"}
# The kinds of a run's tasks, by weight. A run mixes the usual ones with at most one rare kind.
USUAL = {
    "t": 60,
    "refused": 6,
    "poison": 4,
    "unpublishable-refused": 3,
    "toolong": 3,
    "filtered": 2,
    "huge": 2,
    "schema": 3,
}
RARE = {
    "raises": 0.12, "broken": 0.1, "kills": 0.04, "waits": 0.05, "hangs": 0.02, "deadline": 0.1,
    "future": 0.1, "panics": 0.1, "refused": 0.06,
    UNREADABLE: 0.1, UNDECODABLE: 0.1, MISJUDGED: 0.1, "later": 0.1,
}  # fmt: skip

# Limits of a run's agents that are small enough to be reached. Half of the runs have some of them.
NARROW: dict[str, Any] = {"span": 8, "resume_span": 6, "finished_share": 0.6}  # for relief
SMALL: dict[str, tuple[Any, ...]] = {
    "bodies_bytes": (300, 1000, 3000),
    "ready": (2, 6),
    "shelved": (2, 6),
    "rejected": (0, 1),
    "kept_answers": (0, 1),
    "shelve_after_s": (0.5, 2.0),
    "move_after_s": (1.0, 6.0),
    "crowd": (0, 2),
    "page": (2, 3, 5),
    "move_page": (1, 3),
    "quarantine_page": (1, 2),
    "quarantine_page_bytes": (100,),
    "settle_page": (1, 3),
    "sqlite_settle_page": (1, 3),
    "settle_page_bytes": (20, 200),
    "inbox_page": (1, 2),
    "inbox_page_bytes": (50,),
    "inbox_records": (0, 2),
    "inbox_bytes": (100,),
}
# Routes are shelved, and their tasks moved, if an agent is full while a route is closed. An answer
# is forgotten if its claim was lost.
_SHELVING: dict[str, Any] = {"ready": 2, "shelve_after_s": 0.5, "move_after_s": 1.0, "crowd": 0}
_FORGETTING: dict[str, Any] = {"kept_answers": 0}

FALLBACKS = 0.3  # of the runs
OUTPUTS = 0.3  # the same
PURGES = 0.15  # the same
PUT_FAULTS = {"put_fails": 0.3, "put_lost": 0.2}
# Kinds with draws of their own: their share of the runs, and their weight there.
SEPARATE = {
    "locks": (0.15, 25),
    "hooked": (0.1, 25),
    "fragile": (0.1, 25),
    "family": (0.1, 10),
    "narrow": (0.1, 25),
    "polls": (0.1, 25),
    "once": (0.1, 25),
    "shared": (0.1, 25),
    "timed": (0.15, 25),
}
BIG, SMALL_TENANTS = "big", ("small", "poor")  # tenants; most tasks are of the big one
_WEIGHTS = {"refused": 5000}  # a wrong parameter: all of the batch


@dataclass(slots=True)
class Plan:
    """One run.

    Events are (time, kind). `crashes` are the points at which a program is killed in turn, each
    with the pass. `kinds` are the kinds of tasks, by weight. `limits` are the limits of the agents
    that are not those of production. With `linger` all agents stay after
    the last fault, otherwise one does. With `again`, when everything has ended, two people replay
    the dead letters and are interrupted. With `redrive` a dead letter that comes back replays its
    task. `quota` are the limits that are set for the default route; the provider allows
    `provider_share` of them. With `fallback` the tasks of closed routes go on to others, within
    their bounds. With `outputs` most results go to an object store. With `purge` the batch is
    archived and purged when everything has ended. `priorities` are those of the
    tasks, and `tenants` are their tenants; `overflow`
    is the number of a tenant's unfinished tasks from which on others go to the bulk lane.
    """

    seed: int
    agents: int = 1
    tasks: int = 10
    inbox: int = 0
    slots: int = 4
    partitions: int = 2
    max_attempts: int = 3
    sqlite: bool = True
    sweeps: bool = False
    linger: bool = False
    again: bool = False
    redrive: bool = False
    fallback: bool = False
    outputs: bool = False
    purge: bool = False
    horizon_s: float = 20.0
    kinds: dict[str, int] = field(default_factory=dict)
    models: tuple[str, ...] = ("",)
    chances: dict[str, float] = field(default_factory=dict)
    slow_s: dict[str, float] = field(default_factory=dict)
    events: list[tuple[float, str]] = field(default_factory=list)
    crashes: list[tuple[str, int]] = field(default_factory=list)
    limits: dict[str, Any] = field(default_factory=dict)
    quota: dict[str, Any] = field(default_factory=dict)
    provider_share: float = 1.0
    priorities: tuple[int, ...] = ()
    tenants: dict[str, TenantConfig] = field(default_factory=dict)
    overflow: int = 0

    def __str__(self) -> str:
        troubles = [*self.chances, *(f"slow {name}" for name in self.slow_s)]
        events = ", ".join(f"{at_s:.1f} {kind}" for at_s, kind in self.events)
        limits = ", ".join(f"{name} {value}" for name, value in self.limits.items())
        tenants = ", ".join(
            f"{name} (weight {tenant.weight}, {tenant.in_flight or 'any'} at once)"
            for name, tenant in self.tenants.items()
        )
        return (
            f"seed {self.seed}: {self.agents} agents, {self.tasks} tasks, {self.inbox} in the "
            f"inbox, {self.slots} slots, {self.partitions} partitions\n"
            f"  troubles: {', '.join(troubles) or 'none'}\n"
            f"  limits: {limits or 'of production'}; of the provider: {self.quota or 'none'}\n"
            f"  priorities: {self.priorities or 'none'}; tenants: {tenants or 'one'}\n"
            f"  events: {events or 'none'}"
        )


def draw(seed: int, *, faults: bool = True) -> Plan:
    """Return the plan of a seed."""
    rng = random.Random(f"plan {seed}")  # noqa: S311 - a seed must give the same plan
    large = rng.random() < 0.1
    plan = Plan(
        seed=seed,
        agents=rng.choice((1, 2, 2, 3)) if faults else 1,
        tasks=rng.randint(30, 60) if large else rng.randint(5, 25),
        horizon_s=rng.choice((40.0, 60.0)) if large else rng.choice((15.0, 25.0, 40.0)),
        inbox=rng.choice((0, 0, 4)),
        slots=rng.choice((1, 2, 4, 8)),
        partitions=rng.choice((1, 2, 3)),
        max_attempts=rng.choice((2, 3, 3, 5)),
        sqlite=rng.random() < 0.5,
        linger=rng.random() < 0.2,
        kinds=dict(USUAL) if faults else {"t": 1},
        models=rng.choice((("",), ("",), ("", "", "slow"), ("", "slow", "other"))),
    )
    if faults:
        _draw_faults(plan, rng)
        # From other draws than the rest, so that new limits change nothing else of a plan.
        _draw_limits(plan, random.Random(f"limits {seed}"))  # noqa: S311 - the same
        _draw_ahead(plan, random.Random(f"ahead {seed}"))  # noqa: S311 - the same
        _draw_redrives(plan, random.Random(f"redrives {seed}"))  # noqa: S311 - the same
        _draw_quota(plan, random.Random(f"quota {seed}"))  # noqa: S311 - the same
        for kind, (share, weight) in SEPARATE.items():
            if random.Random(f"{kind} {seed}").random() < share:  # noqa: S311 - the same
                plan.kinds[kind] = weight
        _draw_turns(plan, random.Random(f"turns {seed}"))  # noqa: S311 - the same
        _draw_outputs(plan, random.Random(f"outputs {seed}"))  # noqa: S311 - the same
        plan.purge = random.Random(f"purge {seed}").random() < PURGES  # noqa: S311 - the same
        plan.fallback = random.Random(f"fallback {seed}").random() < FALLBACKS  # noqa: S311 - the same
    return plan


def _draw_outputs(plan: Plan, rng: random.Random) -> None:
    plan.outputs = rng.random() < OUTPUTS
    if plan.outputs:
        plan.chances |= {name: chance for name, chance in PUT_FAULTS.items() if rng.random() < 0.5}


def _draw_faults(plan: Plan, rng: random.Random) -> None:
    plan.again = rng.random() < 0.2
    plan.limits = {**NARROW} if rng.random() < 0.2 else {}
    plan.chances = {
        name: chance for name, (share, chance) in _CHANCES.items() if rng.random() < share
    }
    plan.slow_s = {
        name: most_s for name, (share, most_s) in _SLOW_S.items() if rng.random() < share
    }
    for kind, (share, most) in _EVENTS.items():
        if rng.random() < share:
            plan.events += [
                (rng.uniform(1, plan.horizon_s), kind) for _ in range(rng.randint(1, most))
            ]
    plan.events.sort()
    # Drawn by a share of the list, so that a new point in the product changes nothing else of the
    # plan.
    plan.crashes = [
        (POINTS[int(rng.random() * len(POINTS))], rng.choice((1, 1, 2, 3, 5)))
        for _, kind in plan.events
        if kind == "crash"
    ]
    plan.sweeps = any(kind in _RECORDS_LOST for _, kind in plan.events)
    for kind, share in RARE.items():
        if rng.random() < share:
            often = kind in {"raises", "broken", "panics"}
            plan.kinds[kind] = rng.choice((5, 15, 40)) if often else _WEIGHTS.get(kind, 8)


def _draw_ahead(plan: Plan, rng: random.Random) -> None:
    """Let more be claimed ahead: there are few slots, and calls take seconds."""
    plan.limits["ahead_s"] = rng.choice((0.5, 5.0, 20.0))
    plan.limits["ahead_most_s"] = rng.choice((1.0, 10.0))


def _draw_redrives(plan: Plan, rng: random.Random) -> None:
    """Let a tool write dead letters back in some runs."""
    if rng.random() < 0.3:
        plan.redrive = rng.random() < 0.7
        plan.events += [
            (rng.uniform(0.3, 1) * plan.horizon_s, "redrive") for _ in range(rng.randint(1, 3))
        ]
        plan.events.sort()


def _draw_quota(plan: Plan, rng: random.Random) -> None:
    """Set limits of the provider in some runs, and let Redis have troubles in most of them."""
    if rng.random() < 0.65:
        return
    choices = {"rpm": (30, 60, 120), "in_flight": (1, 2, 4), "tpm": (2000, 20_000), "rpd": (8, 20)}
    names = rng.sample(sorted(choices), rng.choice((1, 1, 2)))
    plan.quota = {name: rng.choice(choices[name]) for name in names}
    plan.provider_share = rng.choice((1.0, 1.0, 0.5))
    if rng.random() < 0.3:
        plan.chances["redis_answer_lost"] = 0.1
    if rng.random() < 0.3:
        plan.slow_s["redis"] = 3.0
    for kind in ("redis_away", "redis_flushed", "redis_restored", "redis_clock"):
        if rng.random() < 0.3:
            plan.events += [
                (rng.uniform(1, plan.horizon_s), kind) for _ in range(rng.randint(1, 2))
            ]
    if "rpd" in plan.quota:  # whoever has another date has another day
        plan.events = [event for event in plan.events if event[1] not in _OF_DATES]
    plan.events.sort()


def _draw_turns(plan: Plan, rng: random.Random) -> None:
    """Let tasks be of several lanes and tenants in some runs."""
    if rng.random() < 0.5:
        return
    plan.priorities = rng.choice(((9, 5, 1), (9, 1), (5, 1), (5,)))
    plan.overflow = rng.choice((0, 0, 5))
    names = (BIG, *rng.sample(SMALL_TENANTS, rng.choice((0, 1, 2))))
    plan.tenants = {
        name: TenantConfig(
            weight=rng.choice((0.5, 1.0, 3.0)), in_flight=rng.choice((None, None, 1, 2))
        )
        for name in names
    }


def _draw_limits(plan: Plan, rng: random.Random) -> None:
    """Make limits small, and add events that let some of them be reached."""
    if rng.random() < 0.5:
        return
    drawn = {name: (rng.random() < 0.5, rng.choice(values)) for name, values in SMALL.items()}
    plan.limits |= {name: value for name, (is_small, value) in drawn.items() if is_small}
    for limits, kind in ((_SHELVING, "outage"), (_FORGETTING, "zombie")):
        if rng.random() < 0.3:
            plan.limits |= limits
            plan.events += [(rng.uniform(1, plan.horizon_s), kind) for _ in range(4)]
            plan.models, plan.tasks = ("", "slow"), max(plan.tasks, 30)
            plan.slots = min(plan.slots, 2)  # tasks wait
            plan.slow_s.pop("llm", None)  # a route is closed after some failures
    plan.events.sort()
