"""`python -m tests.simulation`: runs seeds; a failing seed prints how to repeat it."""

import argparse
import sys
from collections.abc import Sequence

from tests.simulation import batch
from tests.simulation.bugs import BUGS, caught
from tests.simulation.seeds import of_this_code
from tests.simulation.store import Store

_BEHIND_THE_TESTS = 100_000
PLANTED = 5000  # the seeds for planted bugs begin behind this one


def main(argv: Sequence[str]) -> int:
    """Run; return 1 if a promise broke or was never in danger, or a planted bug was not caught."""
    options = _options(argv)
    if options.bugs is not None:
        return plant(options.seeds or 2000, options.bugs, remember=options.remember)
    first = of_this_code() + _BEHIND_THE_TESTS if options.new else options.first
    seeds = (
        [options.seed] if options.seed is not None else range(first, first + (options.seeds or 100))
    )
    reported = 0

    def report(seed: int, problems: Sequence[str]) -> bool:
        nonlocal reported
        reported += 1
        _say(
            f"seed {seed}: run it again with: python -m tests.simulation --seed {seed} --trace",
            *(f"    {problem}" for problem in problems[:8]),
        )
        return bool(reported >= options.stop_after)

    if options.new:
        _say(f"new seeds, from {first}; the same again with --first {first}")
    if options.processes > 1:
        summary = batch.run_together(seeds, options.processes, report)
    else:
        summary = batch.run(
            seeds,
            Store(),
            faults=not options.calm,
            say=_say if options.trace else None,
            failed=report,
        )
    _say(*summary.lines())
    return 1 if summary.broken or summary.never else 0


def plant(limit: int, names: Sequence[str], *, remember: bool) -> int:
    """Plant each bug and print how many seeds its checker needs.

    Returns 1 if a bug was not caught within `limit`.
    """
    store, tries = Store(), {}
    _say(caught.HEAD)
    for name in names or list(BUGS):
        seed = batch.seeds_until_caught(name, range(PLANTED + 1, PLANTED + 1 + limit), store)
        tries[name] = seed - PLANTED if seed else 0
        _say(caught.line(name, tries[name]))
    if remember:
        caught.write(caught.read() | tries)
    return 0 if all(tries.values()) else 1


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.simulation", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, help="number of seeds (100; with --bugs at most 2000 for each bug)"
    )
    parser.add_argument("--first", type=int, default=1, help="first seed (1)")
    parser.add_argument(
        "--new",
        action="store_true",
        help="start with seeds that no other version of the code has run",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=1,
        metavar="N",
        help="processes that share the seeds (1); not with --trace or --calm",
    )
    parser.add_argument("--seed", type=int, help="run this seed only")
    parser.add_argument("--trace", action="store_true", help="print each event")
    parser.add_argument("--calm", action="store_true", help="one agent, no faults")
    parser.add_argument(
        "--bugs",
        nargs="*",
        metavar="NAME",
        help="plant these bugs, or all, and print how many seeds each takes",
    )
    parser.add_argument(
        "--remember",
        action="store_true",
        help="store what --bugs found, for the tests and docs/explanation/proof.md",
    )
    parser.add_argument(
        "--stop-after", type=int, default=10, metavar="N", help="stop after N failures (10)"
    )
    options = parser.parse_args(argv)
    if options.processes > 1 and (options.trace or options.calm):
        parser.error("--trace and --calm are for one process; leave --processes out")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
