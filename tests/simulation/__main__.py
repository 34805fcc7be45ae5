"""`python -m tests.simulation`: run seeds; a seed that fails says how to run it again."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.simulation.bugs import BUGS
from tests.simulation.plan import draw
from tests.simulation.store import Store
from tests.simulation.world import World

PLANTED = 5000  # the seeds for planted bugs begin behind this one


def main(argv: Sequence[str]) -> int:
    """Run; return 1 when a promise was broken."""
    options = _options(argv)
    if options.bugs is not None:
        return plant(options.seeds, options.bugs)
    store, failed, struck = Store(), 0, Counter[str]()
    first = options.first if options.seed is None else options.seed
    began_s, virtual_s, seen = time.monotonic(), 0.0, Counter[str]()
    for seed in range(first, first + (1 if options.seed is not None else options.seeds)):
        world = World(draw(seed, faults=not options.calm), store, print if options.trace else None)
        if problems := world.run():
            failed += 1
            report(seed, problems)
        virtual_s += world.loop.time()
        seen += world.seen
        struck += world.weather.struck + Counter(kind for _, kind in world.plan.events)
        if failed >= options.stop_after:
            break
    took_s = time.monotonic() - began_s
    sys.stdout.write(f"{seed - first + 1} seeds, {failed} failed, {virtual_s / 3600:.1f} virtual hours in {took_s:.1f} s\n")
    for title, counts in (("troubles", struck), ("seen", seen)):
        sys.stdout.write(f"{title}: {', '.join(f'{name} {times}' for name, times in sorted(counts.items()))}\n")
    return 1 if failed else 0


def plant(limit: int, names: Sequence[str]) -> int:
    """Plant each bug and say how many seeds its checker needs; return 1 when one was not caught within `limit`."""
    store, missed = Store(), 0
    for name in names or list(BUGS):
        seeds = seeds_until_caught(name, store, limit)
        missed += seeds is None
        sys.stdout.write(f"{name:45} {BUGS[name].promise:4} {f'after {seeds} seeds' if seeds else 'NOT CAUGHT'}\n")
        sys.stdout.flush()
    return 1 if missed else 0


def seeds_until_caught(name: str, store: Store, limit: int) -> int | None:
    """Return how many seeds it takes until the bug's own checker speaks."""
    bug = BUGS[name]
    for count in range(1, limit + 1):
        with bug.plant():
            problems = World(draw(PLANTED + count), store).run()
        if any(problem.startswith(bug.promise) for problem in problems):
            return count
    return None


def report(seed: int, problems: Sequence[str]) -> None:
    """Say what a seed broke and how to see it again."""
    sys.stdout.write(f"seed {seed}: run it again with: python -m tests.simulation --seed {seed} --trace\n")
    for problem in problems[:8]:
        sys.stdout.write(f"    {problem}\n")


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many (100)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (1)")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--trace", action="store_true", help="show what happens")
    parser.add_argument("--calm", action="store_true", help="one agent, no faults")
    parser.add_argument("--bugs", nargs="*", metavar="NAME", help="plant these bugs, or all, and say which seed shows each")
    parser.add_argument("--stop-after", type=int, default=10, metavar="N", help="failures to stop after (10)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
