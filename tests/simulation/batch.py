"""Runs many seeds and sums up their events; plants bugs and counts seeds until caught."""

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

from tests.simulation import reached
from tests.simulation.bugs import BUGS
from tests.simulation.plan import draw
from tests.simulation.store import Store
from tests.simulation.world import World

# Events that must occur in so many runs, or the runs prove nothing. Each promise is in danger by
# some of these.
DANGERS = (
    "reap", "lost agent", "late settle", "superseded", "released", "retry", "snoozed", "moved",
    "swept", "cancelled", "replayed", "repeated call", "call into an outage", "guard raised",
    "quarantined", "redriven", "call on a fallback", "dead, permanent", "dead, exhausted",
    "dead, expired", "lock", "lock lost in use", "lanes in turn", "tenants in turn",
    "hook", "end of a batch told", "second end told", "process ended", "follow-up", "join",
    "purged",
)  # fmt: skip
ENOUGH_SEEDS = 300
_SHARE = 25  # seeds that a process takes at a time


@dataclass(slots=True)
class Summary:
    """The results of some seeds.

    `broken` has each seed's broken promises, `struck` the troubles, `seen` the events, `reached`
    the seeds whose agents reached each limit.
    """

    seeds: int = 0
    broken: dict[int, list[str]] = field(default_factory=dict)
    virtual_s: float = 0.0
    took_s: float = 0.0
    struck: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)

    def add(self, world: World, problems: list[str]) -> None:
        """Add a run that has ended."""
        self.seeds += 1
        if problems:
            self.broken[world.plan.seed] = problems
        self.virtual_s += world.loop.time()
        self.struck += world.weather.struck
        self.seen += world.seen
        self.reached.update(name for name in reached.ALL if world.reached[name])

    def merge(self, other: "Summary") -> None:
        """Add the results of other seeds, except for their time."""
        self.seeds += other.seeds
        self.broken |= other.broken
        self.virtual_s += other.virtual_s
        self.struck += other.struck
        self.seen += other.seen
        self.reached += other.reached

    @property
    def never(self) -> list[str]:
        """Return the dangers and limits that never occurred, if there were enough seeds."""
        if self.seeds < ENOUGH_SEEDS:
            return []
        dangers = [name for name in DANGERS if not self.seen[name]]
        return dangers + [name for name in reached.ALL if not self.reached[name]]

    def lines(self) -> list[str]:
        """Return the figures for a person."""
        hours, speed = self.virtual_s / 3600, 60 * self.seeds / max(0.001, self.took_s)
        crashes = sum(times for name, times in self.struck.items() if name.startswith("at "))
        troubles = Counter(
            {name: times for name, times in self.struck.items() if not name.startswith("at ")}
        ) | {"kill at a point": crashes}
        took = f"{hours:.1f} virtual hours in {self.took_s:.0f} s, {speed:.0f} seeds a minute"
        limits = [f"{name} {self.reached[name]}" for name in reached.ALL]
        return [
            f"{self.seeds} seeds, {len(self.broken)} failed, {took}",
            f"troubles: {', '.join(f'{name} {times}' for name, times in sorted(troubles.items()))}",
            f"seen: {', '.join(f'{name} {times}' for name, times in sorted(self.seen.items()))}",
            f"limits reached, by seeds: {', '.join(limits)}",
            *([f"never seen: {', '.join(self.never)}"] if self.never else []),
        ]


def run(
    seeds: Iterable[int],
    store: Store,
    *,
    faults: bool = True,
    say: Callable[[str], None] | None = None,
    failed: Callable[[int, list[str]], bool] = lambda _seed, _problems: False,
) -> Summary:
    """Run seeds one after another.

    `failed` is called for each seed that broke something; the run ends once it returns True.
    """
    summary, began_s = Summary(), time.monotonic()
    for seed in seeds:
        world = World(draw(seed, faults=faults), store, say)
        problems = world.run()
        summary.add(world, problems)
        if problems and failed(seed, problems):
            break
    summary.took_s = time.monotonic() - began_s
    return summary


def run_together(
    seeds: Sequence[int], processes: int, failed: Callable[[int, list[str]], bool]
) -> Summary:
    """Run seeds in so many processes.

    `failed` is called for each seed that broke something; the run ends once it returns True.
    """
    summary, began_s = Summary(), time.monotonic()
    shares = [seeds[start : start + _SHARE] for start in range(0, len(seeds), _SHARE)]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(_run_share, share) for share in shares]):
            part = done.result()
            summary.merge(part)
            if any(failed(*item) for item in part.broken.items()):
                pool.shutdown(cancel_futures=True)
                break
    summary.took_s = time.monotonic() - began_s
    return summary


def _run_share(seeds: Sequence[int]) -> Summary:
    return run(seeds, Store())


def seeds_until_caught(name: str, seeds: Iterable[int], store: Store) -> int | None:
    """Return the first of these seeds in which the planted bug's own checker finds it, or None."""
    bug = BUGS[name]
    for seed in seeds:
        with bug.plant():
            problems = World(bug.staged(draw(seed)), store).run()
        if any(problem.startswith(bug.promise) for problem in problems):
            return seed
    return None
