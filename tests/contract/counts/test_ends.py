"""Counts, dead letters and orders agree with the tasks, whatever happens to them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from sqlalchemy import select, update

from docllm.agent.ledger.recovery import reaping
from docllm.agent.ledger.settlements import dead_letters, written_rows
from docllm.agent.ports import Settlement
from docllm.agent.ports.outcome import Cancelled
from docllm.producer.ledger import outbox, tally
from docllm.producer.ledger.tally import TallyChange
from docllm.schemas.ledger import tables
from docllm.schemas.task.record.lanes import Lane
from docllm.schemas.task.states import Status
from tests.contract.counts.random_lives import Lives, faults
from tests.support.ledger_database import LedgerDatabase, only_sqlite

STEPS = 60
SEEDS = 16

Patch = pytest.MonkeyPatch


def test_all_agrees_after_every_step(ledger_db: LedgerDatabase) -> None:
    """Whatever the order of settles, losses, cancels and replays, no sum goes wrong.

    The sums of deaths and cancels by batch, type, tenant, route and model are those of the tasks
    that are dead or cancelled now, so none is negative.
    """
    seen: Counter[str] = Counter()
    for seed in range(SEEDS if ledger_db.database.sqlite else 1):
        lives = Lives(ledger_db, seed)
        for _ in range(STEPS):
            lives.step()
            assert faults(ledger_db) == []
        seen += lives.seen

    happened = {
        "settled",
        "superseded",
        "reset",
        "lost",
        "cancelled",
        "replayed",
        "replayed cancelled",
    }
    if ledger_db.database.sqlite:
        assert set(seen) >= happened, "the walks prove nothing"


def replay_on_another_route(patch: Patch) -> None:
    """Take a death back from another route than its own."""
    died = tally.died

    def elsewhere(letter: Mapping[str, Any], delta: int = 1, **more: Any) -> TallyChange:
        return died({**letter, "route": ""} if delta < 0 else letter, delta, **more)

    patch.setattr(tally, "died", elsewhere)


def replay_keeps_the_cost(patch: Patch) -> None:
    """Take a death back, but not what its attempts had cost."""
    died = tally.died

    def free(letter: Mapping[str, Any], delta: int = 1, **more: Any) -> TallyChange:
        return died({**letter, "cost_micro": 0} if delta < 0 else letter, delta, **more)

    patch.setattr(tally, "died", free)


def cancel_under_its_model(patch: Patch) -> None:
    """Count a cancelled task under the model of its attempt, which a replay does not know."""

    def named(settlement: Settlement, outcome: Cancelled) -> list[TallyChange]:
        return [written_rows._change(settlement, Status.CANCELLED, "cancelled", outcome.spent)]

    patch.setattr(written_rows, "_changes_of_cancelled", named)


def sums_without_the_last_attempt(patch: Patch) -> None:
    """Sum up the attempts before the last one only."""
    others = tables.task_attempt.c.outcome != "dead"
    patch.setattr(dead_letters, "_TASKS", dead_letters._TASKS.where(others))


def sums_since_the_replay(patch: Patch) -> None:
    """Sum up only the attempts since the last replay, which have the task's fence."""
    since = tables.task_attempt.c.fence == tables.task.c.fence
    patch.setattr(dead_letters, "_TASKS", dead_letters._TASKS.where(since))


def reap_forgets_the_route(patch: Patch) -> None:
    """Write the dead letter of a lost task without the route that its row has."""
    letter = reaping._letter
    patch.setattr(reaping, "_letter", lambda row, text: letter(row, text) | {"route": ""})


def reap_keeps_the_carrier(patch: Patch) -> None:
    """Order a record on the first topic while the row says that a tier carries it."""
    back = reaping._requeue

    def kept(connection: Any, group: str, rows: Sequence[Any]) -> None:
        carriers = connection.execute(
            select(tables.task.c.id, tables.task.c.carrier).where(
                tables.task.c.id.in_([row.id for row in rows])
            )
        ).all()
        back(connection, group, rows)
        for row in carriers:
            of_row = update(tables.task).where(tables.task.c.id == row.id)
            connection.execute(of_row.values(carrier=row.carrier))

    patch.setattr(reaping, "_requeue", kept)


def replay_into_the_normal_lane(patch: Patch) -> None:
    """Replay each task into the normal lane, whatever lane it was loaded into."""
    patch.setattr(outbox, "LANE_CARRIER", "tasks")
    patch.setattr(outbox, "known_lane", lambda _number: Lane.NORMAL)


@only_sqlite
@pytest.mark.parametrize(
    "plant",
    [
        replay_on_another_route,
        replay_keeps_the_cost,
        cancel_under_its_model,
        sums_without_the_last_attempt,
        sums_since_the_replay,
        reap_forgets_the_route,
        reap_keeps_the_carrier,
        replay_into_the_normal_lane,
    ],
)
def test_a_wrong_writer_is_found(
    ledger_db: LedgerDatabase, plant: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    """The walks find each planted bug."""
    plant(monkeypatch)
    for seed in range(SEEDS):
        lives = Lives(ledger_db, seed)
        for _ in range(STEPS):
            try:
                lives.step()
            except KeyError:  # a task that died has no row among the sums
                return
            if faults(ledger_db):
                return
    raise AssertionError("no walk shows the bug")
