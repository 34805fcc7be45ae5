"""The product's own agents on virtual time: new seeds and runs.

The last tests check the simulation's own rules.
"""

import gc
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.simulation import batch, reached
from tests.simulation.__main__ import PLANTED
from tests.simulation.bugs import BUGS, caught, stages
from tests.simulation.plan import NARROW, SMALL, draw
from tests.simulation.seeds import NUMBER, first, loaded
from tests.simulation.store import Store
from tests.simulation.world import World

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def store() -> Store:
    store = Store()
    gc.freeze()  # the collector spent a tenth of each run on objects that stay
    return store


@pytest.mark.timeout(900 + 6 * NUMBER)
def test_no_seed_breaks_a_promise(store: Store) -> None:
    """Every promise holds under hundreds of new plans of faults, and each was in danger."""
    seeds = range(first(), first() + NUMBER)
    summary = batch.run(seeds, store)

    assert not summary.broken, "\n".join(
        f"python -m tests.simulation --seed {seed} --trace: {problems[:3]}"
        for seed, problems in summary.broken.items()
    )
    assert not summary.never


@pytest.mark.parametrize("limits", [{}, NARROW | {name: SMALL[name][0] for name in SMALL}])
def test_without_faults_every_call_is_made_once(limits: dict[str, Any], store: Store) -> None:
    """Without faults one agent calls once for each task, and everything ends.

    So it is with the smallest limits.
    """
    world = World(replace(draw(3, faults=False), limits=limits), store)

    assert world.run() == []
    assert world.seen["repeated call"] == 0
    assert world.seen["call"] == world.plan.tasks + world.plan.inbox


@pytest.mark.parametrize("kind", ["refused", "schema"])
def test_a_batch_of_bad_tasks_ends_by_itself(kind: str, store: Store) -> None:
    """Nobody opens its guard: looks double, and their tasks die."""
    plan = replace(draw(3), **stages.ALL_FAIL | {"tasks": 60, "kinds": {kind: 1}, "again": False})
    world = World(plan, store)

    assert world.run() == []
    assert world.seen["guard raised"]
    assert world.seen["tried in a look"] > 0
    assert world.seen["succeeded"] == 0


@pytest.mark.parametrize("seed", range(4))
def test_follow_ups_are_made_with_their_parents(seed: int, store: Store) -> None:
    """Agents lose claims, settle late and die, also between the numbers and their tasks."""
    died = {"crashes": [("settle.ids_taken", 1)], "events": [*stages.FAMILIES["events"]]}
    died["events"] = sorted([*died["events"], (9.0, "crash")])
    world = World(replace(draw(seed), **stages.FAMILIES | died), store)

    assert world.run() == []
    assert world.seen["superseded"] + world.seen["late settle"] + world.weather.struck["crash"] > 0


def test_a_danger_or_a_limit_that_no_seed_met_fails_the_summary() -> None:
    """Enough seeds without a danger, or without a reached limit, prove nothing."""
    summary = batch.Summary(seeds=batch.ENOUGH_SEEDS)
    summary.seen.update(batch.DANGERS[1:])
    summary.reached.update(reached.ALL[1:])

    assert summary.never == [batch.DANGERS[0], reached.ALL[0]]
    assert batch.Summary(seeds=1).never == []


def test_a_seed_gives_the_same_run_again(store: Store) -> None:
    """A seed gives the same trace in another process with other hashes, and after other runs."""
    trace = "".join(f"{line}\n" for line in _lines(7, store))

    assert _trace(seed=7, hashes="1").startswith(trace)
    assert "commit" in trace


def test_new_seeds_follow_from_all_that_a_run_loads() -> None:
    """Many runs load the same files as the first, which identify a version of the code."""
    assert loaded(seeds=10) == loaded()


def test_cached_statements_equal_those_of_sqlalchemy(store: Store) -> None:
    """A run whose statements all go SQLAlchemy's way is the same run."""
    slow = Store()
    slow.connection.is_quick = False

    for seed in range(11, 17):
        assert _lines(seed, store) == _lines(seed, slow)
    assert any(store.connection.constants.values())
    assert not slow.connection.constants


@pytest.mark.proof
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(name: str, store: Store) -> None:
    """The checker finds its planted bug about as soon as the proof's table says.

    A change of the simulation moves the bug to other seeds, so four times as many are tried.
    """
    seeds = caught.read().get(name, 1)
    again = f'the table of the proof is old: python -m tests.simulation --bugs "{name}" --remember'

    assert batch.seeds_until_caught(
        name, [PLANTED + seeds, *range(PLANTED + 1, PLANTED + max(40, 4 * seeds))], store
    ), again


def test_every_promise_has_a_planted_bug() -> None:
    """Every checker has a planted bug that it finds, and the proof's table has every bug."""
    assert {bug.promise for bug in BUGS.values()} == {f"P{number}" for number in range(1, 10)}
    assert caught.read().keys() == BUGS.keys()


def _trace(*, seed: int, hashes: str) -> str:
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--trace"]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": hashes},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def _lines(seed: int, store: Store) -> list[str]:
    lines: list[str] = []
    assert World(draw(seed), store, lines.append).run() == []
    return lines
