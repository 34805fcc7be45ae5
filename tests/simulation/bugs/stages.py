"""Stages: additions to a plan, for bugs that would otherwise need very many plans."""

from typing import Any

from docllm.schemas.settings.quota import TenantConfig

Stage = dict[str, Any]

_BUSY: Stage = {
    "tasks": 40,
    "horizon_s": 60.0,
    "slow_s": {"llm": 19.0},
    "crashes": [],
    "slots": 4,
    "agents": 3,
    "linger": True,
}
ZOMBIES: Stage = {**_BUSY, "events": [(4.0 * turn, "zombie") for turn in range(1, 14)]}
_PLAIN: Stage = {"models": ("",), "chances": {}, "kinds": {"t": 1}}
# The next agent of a zombie's task snoozes it, and the zombie may claim it again.
CONTESTED: Stage = {
    **ZOMBIES,
    **_PLAIN,
    "slots": 8,
    "chances": {"llm_429": 0.3, "zombie_commits": 1.0},
    "limits": {},
}
# A reaper waits for the database between what it finds and what it resets. Another reaper is
# faster, and a third agent claims the task meanwhile.
SLOW_REAPERS: Stage = {
    **ZOMBIES,
    **_PLAIN,
    "agents": 5,
    "slots": 8,
    "partitions": 3,
    "slow_s": {"llm": 19.0, "database": 3.0},
}
# Partitions move while claims wait for the database. Nobody stands still or leaves, so that no
# claim has an excuse to last until its deadline.
REVOCATIONS: Stage = {
    **_BUSY,
    **_PLAIN,
    "tasks": 20,
    "horizon_s": 40.0,
    "slow_s": {"database": 3.0},
    "events": [(2.0 * turn, "shuffle") for turn in range(1, 20)],
}
# A failure makes a task dead at once, and people replay it.
REPLAYED: Stage = {
    **_PLAIN,
    "agents": 1,
    "tasks": 12,
    "slots": 4,
    "horizon_s": 40.0,
    "max_attempts": 1,
    "chances": {"llm_500": 0.4},
    "slow_s": {},
    "crashes": [],
    "limits": {},
    "quota": {},
    "events": [(8.0 * turn, "replay") for turn in range(1, 6)],
    "again": True,
}
DATABASE_AWAY: Stage = {**_BUSY, "events": [(8.0 * turn, "database_away") for turn in range(1, 7)]}
# Tasks of it wait.
CANCELLED: Stage = {
    **_BUSY,
    "events": [(14.0, "crash"), (15.0, "cancel")],
    "crashes": [("cancel.marked", 1)],
}

_ALONE: Stage = {
    "agents": 1,
    "inbox": 0,
    "models": ("",),
    "chances": {},
    "kinds": {"t": 1},
    "crashes": [],
}
OUTAGES: Stage = {
    **_ALONE, "tasks": 60, "slots": 8, "horizon_s": 60.0, "max_attempts": 5,
    "events": [(at_s, "outage") for at_s in (2.0, 2.1, 30.0, 30.1)],
}  # fmt: skip
# Faults last until the last event.
UNPAID: Stage = {
    **_ALONE,
    "tasks": 20,
    "horizon_s": 40.0,
    "chances": {"llm_broke": 0.2},
    "events": [(38.0, "start")],
}
ALL_PANIC: Stage = {
    **_ALONE,
    "tasks": 6,
    "horizon_s": 60.0,
    "kinds": {"panics": 1},
    "events": [(55.0, "start")],
}
# Tasks die, and a tool writes their letters back.
REDRIVES: Stage = {
    **_ALONE,
    "tasks": 10,
    "horizon_s": 40.0,
    "kinds": {"toolong": 1},
    "events": [(20.0, "redrive"), (30.0, "redrive"), (39.0, "start")],
}
ALL_FAIL: Stage = {**_ALONE, "tasks": 10, "max_attempts": 2, "kinds": {"broken": 1}, "events": []}
ALL_REFUSED: Stage = {**_ALONE, "tasks": 40, "slots": 8, "kinds": {"refused": 1}, "events": []}

# A program that froze with an order in hand sends it when another has sent it already, and a person
# has replayed meanwhile.
LATE_SENDERS: Stage = {
    **_ALONE,
    "agents": 3,
    "tasks": 20,
    "linger": True,
    "horizon_s": 120.0,
    "kinds": {"refused": 1},
    "slow_s": {"database": 3.0},
    "events": sorted(
        [(3.0 * turn + 1, "freeze") for turn in range(30)]
        + [(3.0 * turn + 34, "replay") for turn in range(28)]
    ),
}
# People replay while agents that refuse every task stand still now and then.
REPLAYS: Stage = {
    **LATE_SENDERS,
    "horizon_s": 60.0,
    "events": sorted(
        [(3.0 * turn + 1, "freeze") for turn in range(8)]
        + [(3.0 * turn + 10, "replay") for turn in range(14)]
    ),
}
# The provider's rate limit refuses many calls.
RATES: Stage = {"chances": {"llm_429": 0.4}, "kinds": {"t": 1}}
# Half of the tasks have a deadline.
DEADLINES: Stage = {"kinds": {"t": 1, "deadline": 1}}
# All tasks want one lock.
LOCKED: Stage = {**_BUSY, "kinds": {"locks": 1}, "models": ("",), "chances": {}, "events": []}
LOCKED_ZOMBIES: Stage = {**ZOMBIES, "kinds": {"locks": 1}, "models": ("",), "chances": {}}
# On a server, whose answers take long, outcomes are settled one by one and two at once.
OVERLAPPING: Stage = {
    **ZOMBIES,
    **_PLAIN,
    "sqlite": False,
    "slots": 8,
    "slow_s": {"database": 3.0},
    "limits": {"settle_page": 1},
}
# Many tasks are claimed ahead of few slots, by agents whose leases are lost.
AHEAD_ZOMBIES: Stage = {
    **ZOMBIES,
    **_PLAIN,
    "slots": 8,
    "limits": {"ahead_s": 60.0, "ahead_most_s": 60.0},
}
# The same while partitions move. Calls are quick enough for answers to be known.
AHEAD_REVOCATIONS: Stage = {**REVOCATIONS, "tasks": 60, "slots": 2, "limits": {"ahead_s": 20.0}}
# Limits that every run reaches.
SMALL: Stage = {"limits": {"bodies_bytes": 300, "ready": 2, "rejected": 0, "page": 2}}
# Tasks of a closed route wait beside those of an open one.
CLOSED_ROUTE: Stage = {
    **_ALONE,
    "tasks": 60,
    "slots": 2,
    "horizon_s": 60.0,
    "models": ("", "slow"),
    "slow_s": {},
    "events": [(2.0 + 10 * turn, "outage") for turn in range(5)],
    "limits": SMALL["limits"]
    | {"shelve_after_s": 0.5, "move_after_s": 2.0, "crowd": 0, "move_page": 3},
}
# Three agents share a limit of the provider that they all need.
LIMITED: Stage = {
    **_ALONE,
    "agents": 3,
    "partitions": 3,
    "tasks": 60,
    "slots": 8,
    "horizon_s": 20.0,
    "linger": True,
    "slow_s": {},
    "events": [],
    "limits": {},
    "quota": {"rpm": 30},
    "provider_share": 1.0,
}
# Half of the agents do not know the type of half of the tasks.
UNKNOWN_TYPE: Stage = {**_BUSY, **_PLAIN, "kinds": {"t": 1, "later": 1}, "events": []}
# Routes fail one after the other, and tasks go on to those that work.
FALLBACKS: Stage = {
    **_BUSY,
    "fallback": True,
    "models": ("", "slow"),
    "kinds": {"t": 1},
    "slow_s": {},
    "slots": 2,
    "again": False,
    "limits": {},
    "events": [(1.0 + 4.0 * turn, "outage") for turn in range(12)],
}
# Tasks order follow-ups, and agents whose claims were taken from them settle late.
FAMILIES: Stage = {
    **ZOMBIES,
    **_PLAIN,
    "tasks": 20,
    "slots": 8,
    "kinds": {"family": 1},
    "limits": {},
}
# Follow-ups and their joins are cancelled and replayed.
REPLAYED_FAMILIES: Stage = {
    **_BUSY,
    **_PLAIN,
    "tasks": 20,
    "slots": 8,
    "kinds": {"family": 1},
    "limits": {},
    "events": [(8.0, "cancel"), (16.0, "reopen"), (30.0, "cancel"), (40.0, "reopen")],
    "again": True,
}
# Agents are killed while their tasks' hooks run.
HOOKED: Stage = {
    **_BUSY,
    **_PLAIN,
    "tasks": 20,
    "kinds": {"hooked": 1},
    "limits": {},
    "events": [(5.0 * turn, "crash") for turn in range(1, 6)],
    "crashes": [("hook.leased", 2), ("hook.ran", 2)] * 3,
}
# Agents are killed between a settle and what they send of it.
STREAMED: Stage = {**HOOKED, "crashes": [("settle.committed", 2)] * 6}
# All tasks are of a type with one slot.
TIMED: Stage = {**_PLAIN, "kinds": {"timed": 1}, "tasks": 20}
POLLS: Stage = {**_PLAIN, "kinds": {"polls": 1}, "tasks": 20, "events": []}
# Agents are lost, and leave, while their runs wait for answers.
ONCE: Stage = {
    **ZOMBIES,
    **_PLAIN,
    "kinds": {"once": 1},
    "max_attempts": 5,
    "limits": {},
    "again": False,
    "events": [(4.0 * turn, ("kill", "drain", "zombie")[turn % 3]) for turn in range(1, 14)],
}
CUT_OFF: Stage = {**ONCE, "kinds": {"narrow": 1}}  # the same with tasks that run again
NARROW: Stage = {**_BUSY, **_PLAIN, "kinds": {"narrow": 1}, "tasks": 20, "events": []}
# All tasks use what the group's limits allow.
SHARED: Stage = {**_BUSY, **_PLAIN, "kinds": {"shared": 1}, "tasks": 20, "events": []}
# A third of the tasks end their processes, another third breaks them.
FRAGILE: Stage = {**_BUSY, **_PLAIN, "kinds": {"fragile": 1}, "events": [], "max_attempts": 5}
# Results go to an object store, and agents die between the write and the settle.
WRITTEN: Stage = {
    **_BUSY,
    **_PLAIN,
    "outputs": True,
    "chances": {"put_lost": 0.7},
    "events": [(4.0 * turn, "crash") for turn in range(1, 6)],
    "crashes": [("output.put", 2), ("call.answered", 3)] * 3,
}
# Tasks of all lanes and of several tenants wait together, more than the slots can take.
TURNS: Stage = {
    **_ALONE,
    "tasks": 140,
    "slots": 2,
    "horizon_s": 15.0,
    "slow_s": {},
    "events": [],
    "limits": {},
    "fallback": False,
    "again": False,
    "quota": {},
    "priorities": (9, 5, 1),
    "tenants": {"big": TenantConfig(), "small": TenantConfig(), "poor": TenantConfig(weight=0.5)},
}
# One slot, and long calls: the tenant with a cap must have its place at the right time.
CAPPED: Stage = {
    **TURNS,
    "tasks": 40,
    "slots": 1,
    "slow_s": {"llm": 19.0},
    "priorities": (5,),
    "tenants": {"big": TenantConfig(), "poor": TenantConfig(in_flight=1)},
}
# The batch is purged, and records of it arrive again.
PURGED: Stage = {"purge": True}
