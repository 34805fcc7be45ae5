"""Runs of the product's own agents on virtual time: new seeds, the seeds that ever failed, and what the simulation itself must keep."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.plan import draw
from tests.simulation.store import Store
from tests.simulation.world import World

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 100
EVER_FAILED: dict[int, str] = {}  # seed: what it showed


@pytest.fixture(scope="module")
def store() -> Store:
    return Store()


def test_no_seed_breaks_a_promise(store: Store) -> None:
    """Under a hundred plans of faults every promise holds, and every promise was in danger."""
    broken: dict[int, list[str]] = {}
    seen: Counter[str] = Counter()
    for seed in range(1, SEEDS + 1):
        world = World(draw(seed), store)
        if problems := world.run():
            broken[seed] = problems
        seen += world.seen

    assert not broken, "\n".join(f"python -m tests.simulation --seed {seed} --trace: {problems[:3]}" for seed, problems in broken.items())
    assert all(seen[name] for name in ("late settle", "reap", "fenced", "lost agent", "quarantined", "cancelled", "repeated call")), seen


@pytest.mark.parametrize("seed", EVER_FAILED)
def test_no_seed_fails_again(seed: int, store: Store) -> None:
    """A seed that once showed a bug shows none."""
    assert World(draw(seed), store).run() == []


def test_without_faults_every_call_is_made_once(store: Store) -> None:
    """One agent without faults calls once for each task, and everything ends."""
    world = World(draw(3, faults=False), store)

    assert world.run() == []
    assert world.seen["repeated call"] == 0
    assert world.seen["call"] == world.plan.tasks + world.plan.inbox


def test_a_seed_gives_the_same_run_again() -> None:
    """The same seed gives the same trace in another process with other hashes."""
    traces = [_trace(seed=7, hashes=hashes) for hashes in ("1", "2")]

    assert traces[0] == traces[1]
    assert "commit" in traces[0]


@pytest.mark.parametrize("name", [name for name, bug in BUGS.items() if bug.seeds])
def test_a_planted_bug_is_caught(name: str, store: Store) -> None:
    """The checker of a promise speaks when the promise is broken on purpose."""
    bug = BUGS[name]

    with bug.plant():
        problems = [problem for seed in bug.seeds for problem in World(draw(seed), store).run()]

    assert any(problem.startswith(bug.promise) for problem in problems)


def _trace(*, seed: int, hashes: str) -> str:
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--trace"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": hashes}, capture_output=True, text=True, check=True)
    return "".join(line for line in done.stdout.splitlines(keepends=True) if " virtual hours in " not in line)
