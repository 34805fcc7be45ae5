"""The protocol as a whole, on walks with all kinds of faults.

The ledger is the real one, and the walks check every promise after each step. Tests of a single
transition are in the suite of its statement.
"""

import logging
from collections import Counter

import pytest

from docllm.agent.ledger.recovery import reaping
from tests.contract.protocol.walk import walk
from tests.contract.protocol.world import World
from tests.support.ledger_database import LedgerDatabase

STEPS = 60


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Lost reports are normal in these worlds, so they are not logged."""
    caplog.set_level(logging.ERROR, "docllm.producer.publishing.relay")


def seeds(ledger_db: LedgerDatabase, on_a_file: int, on_a_server: int) -> range:
    return range(on_a_file if ledger_db.database.sqlite else on_a_server)


@pytest.mark.parametrize("tasks", [1, 2])
def test_with_faults_of_every_kind_all_promises_hold(ledger_db: LedgerDatabase, tasks: int) -> None:
    """Every task ends once, and a waiting task always has a record or an order.

    The faults are crashes, rebalances, zombies, lost answers and reports, and reapers that err.
    """
    seen: Counter[str] = Counter()
    for seed in seeds(ledger_db, 15, 4):
        world = World(ledger_db, seed, tasks=tasks)
        walk(world, STEPS)
        seen += world.seen

    if ledger_db.database.sqlite and tasks == 2:
        assert set(seen) >= {"late settle", "superseded", "held", "reaped", "done", "stale"}, (
            "the walks prove nothing"
        )


def test_with_a_limit_of_two_losses_all_promises_hold(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks that die of lost agents have their dead letters too."""
    monkeypatch.setattr(reaping, "LOSS_LIMIT", 2)
    for seed in seeds(ledger_db, 8, 2):
        walk(World(ledger_db, seed), STEPS)


def test_with_a_cancel_all_promises_hold(ledger_db: LedgerDatabase) -> None:
    """Whatever is under way when a batch is cancelled, each of its tasks ends."""
    for seed in seeds(ledger_db, 8, 2):
        walk(World(ledger_db, seed, tasks=2, cancels=1), STEPS)


def test_records_that_kafka_loses_are_found_and_published_again(ledger_db: LedgerDatabase) -> None:
    """Thanks to the sweep, a topic that loses its records prevents no task's end."""
    for seed in seeds(ledger_db, 8, 2):
        walk(World(ledger_db, seed, tasks=2, losses=2), STEPS)
