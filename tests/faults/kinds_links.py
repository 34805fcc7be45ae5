"""Faults of the ways to servers, of one agent or all: cut, blocked, slow, or torn messages."""

from collections.abc import Callable

from tests.faults.doors import Door, LinkFault, Mode
from tests.faults.fault import Cost, Fault, Kind
from tests.faults.site import AGENTS, PARTS

ALL_SHARE = 0.25  # share of the faults that meet every agent at once
EVIDENCE = {
    Mode.CUT: ("cut", "refused"),
    Mode.HOLE: ("held",),
    Mode.SLOW: ("delayed",),
    Mode.TEAR: ("torn",),
}
COSTS = {"kafka": Cost.NOTHING, "database": Cost.LEASE, "redis": Cost.NOTHING, "llm": Cost.REPLY}
HOLD_S = {
    Mode.CUT: (2.0, 20.0),
    Mode.HOLE: (3.0, 25.0),
    Mode.SLOW: (5.0, 20.0),
    Mode.TEAR: (3.0, 12.0),
}


def wrong_way(part: str, mode: Mode) -> Callable[[Fault], None]:
    """Return the fault that breaks the ways to a server for a while."""

    def act(fault: Fault) -> None:
        site, chance = fault.site, fault.chance
        seats = AGENTS if chance.random() < ALL_SHARE else (fault.seat,)
        doors = [door for seat in seats for door in site.doors_of(part, seat)]
        fault.begin(f"{part} of {'all' if len(seats) > 1 else fault.seat}", *seats)
        wrong = LinkFault(
            mode, chance.uniform(0.05, 0.4), chance.uniform(20e3, 400e3), chance.randint(20, 60)
        )
        for door in doors:
            site.proxy.set(door, wrong)
        fault.hold(lambda: _met(fault, doors, mode))
        lost = chance.random() < 1 / 2
        for door in doors:
            site.proxy.set(door, LinkFault(), reset=lost)

    def _met(fault: Fault, doors: list[Door], mode: Mode) -> bool:
        door_counts = [fault.site.proxy.counts(door) for door in doors]
        fault.evidence.update(
            {name: sum(counts.get(name, 0) for counts in door_counts) for name in EVIDENCE[mode]}
        )
        return any(fault.evidence[name] for name in EVIDENCE[mode])

    return act


KINDS = tuple(
    Kind(
        f"{part}-link-{mode.value}",
        wrong_way(part, mode),
        ("{seat}", f"ways to {part}"),
        HOLD_S[mode],
        COSTS[part],
        0.5,
    )
    for part in PARTS
    for mode in EVIDENCE
)
