"""A run ends only when nothing and nobody can make more work."""

import random
from types import SimpleNamespace
from typing import Any

from tests.simulation.broker import Broker
from tests.simulation.eventloop import Process
from tests.simulation.watch import unfinished


def empty_run(*others: object) -> Any:
    """Return a run without tasks, orders or records."""
    # Protects nothing.
    broker = Broker(rng=random.Random(1), utc_s=lambda: 0.0, turn=lambda: 0)  # noqa: S311
    return SimpleNamespace(
        store=SimpleNamespace(rows=lambda _sql: [(0,)]),
        broker=broker,
        loader=SimpleNamespace(running=False, killed=False),
        others=others,
    )


def test_a_run_has_not_ended_while_a_record_is_on_its_way() -> None:
    """A record that a live program will write is unfinished work; a dead program's is not."""
    run = empty_run()
    program = Process("load")
    run.broker.sending.append(program)
    assert "1 sending" in unfinished(run)

    program.alive = False
    assert unfinished(run) == ""


def test_a_run_has_not_ended_while_a_person_is_about_to_replay() -> None:
    """A command that runs may still make work."""
    assert "replay-1" in unfinished(empty_run(SimpleNamespace(name="replay-1", running=True)))
    assert unfinished(empty_run(SimpleNamespace(name="replay-1", running=False))) == ""
