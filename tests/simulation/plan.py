"""What a seed means: how large the run is, which troubles it has, and what happens when. Most troubles are off in most runs."""

import random
from dataclasses import dataclass, field

# Chances while there are faults; a run turns each on with the probability in front.
_CHANCES = {
    "busy": (0.3, 0.05),
    "lost_ack": (0.4, 0.05),
    "answer_lost": (0.4, 0.1),
    "commit_fails": (0.3, 0.3),
    "commit_unheard": (0.3, 0.3),
    "zombie_commits": (0.3, 1.0),
    "read_again": (0.3, 0.05),
    "read_skipped": (0.3, 0.3),
    "send_fails": (0.3, 0.3),
    "report_lost": (0.4, 0.3),
    "sent_twice": (0.4, 0.2),
    "llm_hangs": (0.3, 0.05),
    "llm_500": (0.3, 0.2),
    "llm_429": (0.3, 0.2),
    "llm_cut": (0.3, 0.2),
    "llm_unreachable": (0.2, 0.1),
    "llm_bad": (0.2, 0.1),
}
_SLOW_S = {"database": (0.3, 3.0), "broker": (0.3, 3.0), "publish": (0.3, 15.0), "llm": (0.7, 19.0)}
# Events: the probability that a run has them at all, and how many at most.
_EVENTS = {
    "kill": (0.5, 4),
    "freeze": (0.6, 3),
    "stall_loop": (0.4, 2),
    "stall_beat": (0.6, 3),
    "drain": (0.4, 2),
    "start": (0.3, 2),
    "shuffle": (0.5, 6),
    "evict": (0.5, 4),
    "zombie": (0.5, 3),
    "database_away": (0.3, 2),
    "broker_away": (0.3, 2),
    "llm_away": (0.3, 1),
    "garbage": (0.4, 8),
    "copies": (0.5, 3),
    "cancel": (0.1, 1),
    "kill_load": (0.3, 2),
    "lose": (0.15, 2),
    "forget_offsets": (0.15, 1),
}


@dataclass(slots=True)
class Plan:
    """One run. Events are (time, kind)."""

    seed: int
    agents: int = 1
    tasks: int = 10
    inbox: int = 0
    slots: int = 4
    partitions: int = 2
    sweeps: bool = False
    narrow: bool = False
    horizon_s: float = 20.0
    chances: dict[str, float] = field(default_factory=dict)
    slow_s: dict[str, float] = field(default_factory=dict)
    events: list[tuple[float, str]] = field(default_factory=list)

    def __str__(self) -> str:
        troubles = [*self.chances, *(f"slow {name}" for name in self.slow_s)]
        events = ", ".join(f"{at_s:.1f} {kind}" for at_s, kind in self.events)
        size = f"{self.agents} agents, {self.tasks} tasks, {self.inbox} in the inbox, {self.slots} slots, {self.partitions} partitions"
        return f"seed {self.seed}: {size}\n  troubles: {', '.join(troubles) or 'none'}\n  events: {events or 'none'}"


def draw(seed: int, *, faults: bool = True) -> Plan:
    """Return the plan of a seed."""
    rng = random.Random(f"plan {seed}")  # noqa: S311 - a seed must give the same plan
    plan = Plan(
        seed=seed,
        agents=rng.choice((1, 2, 3, 3)) if faults else 1,
        tasks=rng.randint(10, 60),
        horizon_s=rng.choice((30.0, 60.0)),
        inbox=rng.choice((0, 0, 5)),
        slots=rng.choice((1, 2, 4, 8)),
        partitions=rng.choice((1, 2, 3)),
    )
    if faults:
        _draw_faults(plan, rng)
    return plan


def _draw_faults(plan: Plan, rng: random.Random) -> None:
    plan.narrow = rng.random() < 0.3  # in a narrow span, relief comes to pass
    plan.chances = {name: chance for name, (share, chance) in _CHANCES.items() if rng.random() < share}
    plan.slow_s = {name: most_s for name, (share, most_s) in _SLOW_S.items() if rng.random() < share}
    for kind, (share, most) in _EVENTS.items():
        if rng.random() < share:
            plan.events += [(rng.uniform(1, plan.horizon_s), kind) for _ in range(rng.randint(1, most))]
    plan.events.sort()
    plan.sweeps = any(kind in {"lose", "forget_offsets"} for _, kind in plan.events)
