"""Faults of the ways to servers, of one agent or all: cut, blocked, slow, or torn messages."""

from collections.abc import Callable

from tests.faults.doors import Mode, Wrong
from tests.faults.site import AGENTS, PARTS
from tests.faults.strike import Cost, Kind, Strike

ALL_SHARE = 0.25  # share of the faults that meet every agent at once
EVIDENCE = {
    Mode.CUT: ("cut", "refused"),
    Mode.HOLE: ("held",),
    Mode.SLOW: ("delayed",),
    Mode.TEAR: ("torn",),
}
COSTS = {"kafka": Cost.NOTHING, "mariadb": Cost.LEASE, "redis": Cost.NOTHING, "llm": Cost.REPLY}
HOLD_S = {
    Mode.CUT: (2.0, 20.0),
    Mode.HOLE: (3.0, 25.0),
    Mode.SLOW: (5.0, 20.0),
    Mode.TEAR: (3.0, 12.0),
}


def wrong_way(part: str, mode: Mode) -> Callable[[Strike], None]:
    """Return the fault that breaks the ways to a server for a while."""

    def act(strike: Strike) -> None:
        site, chance = strike.site, strike.chance
        seats = AGENTS if chance.random() < ALL_SHARE else (strike.seat,)
        doors = [door for seat in seats for door in site.doors_of(part, seat)]
        strike.begin(f"{part} of {'all' if len(seats) > 1 else strike.seat}", *seats)
        wrong = Wrong(
            mode, chance.uniform(0.05, 0.4), chance.uniform(20e3, 400e3), chance.randint(20, 60)
        )
        for door in doors:
            site.proxy.set(door, wrong)
        strike.hold(lambda: _met(strike, doors, mode))
        lost = chance.random() < 1 / 2
        for door in doors:
            site.proxy.set(door, Wrong(), reset=lost)

    def _met(strike: Strike, doors: list, mode: Mode) -> bool:
        told = [strike.site.proxy.counts(door) for door in doors]
        strike.evidence.update(
            {name: sum(one.get(name, 0) for one in told) for name in EVIDENCE[mode]}
        )
        return any(strike.evidence[name] for name in EVIDENCE[mode])

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
