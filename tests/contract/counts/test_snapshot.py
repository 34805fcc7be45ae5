"""A snapshot of a group: counters that never fall, and sums that equal the ledger's rows."""

from collections import Counter
from collections.abc import Iterable

import pytest
from sqlalchemy import Connection, insert, text

from docllm.agent.ledger.counts import compaction
from docllm.agent.ledger.counts.compaction import CompactionLimits
from docllm.agent.ports.outcome import Released
from docllm.producer.ledger.status import group_status, snapshot
from docllm.producer.ledger.status.group_sums import OTHER
from docllm.producer.ledger.status.snapshot import Snapshot
from docllm.producer.metrics.family import RouteLabels
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.sql import utc_after, utc_now
from docllm.schemas.task.states import FINAL, Status
from tests.contract.counts.random_lives import Lives
from tests.contract.support.ledger_dead import set_aside
from tests.support.ledger_database import (
    DEAD,
    GROUP,
    RETRY,
    SPENT,
    SUCCEEDED,
    LedgerDatabase,
    new_task,
    only_sqlite,
)

ROUTES = RouteLabels(["east"])
AT_ONCE = CompactionLimits(after_s=0.0, page=7, groups=5)


def read(ledger_db: LedgerDatabase) -> Snapshot:
    return ledger_db.call(snapshot.read_snapshot, GROUP, ROUTES.label)


def counters(found: Snapshot) -> Counter[tuple[object, ...]]:
    sums = found.sums
    counted: Counter[tuple[object, ...]] = Counter({("loaded",): sums.loaded})
    counted["replayed",] = sums.replayed
    families: Iterable[tuple[str, Counter[object]]] = {
        "ended": sums.ended,
        "dead": sums.dead,
        "attempts": sums.attempts,
        "tokens": sums.tokens,
        "cost": sums.cost_micro,
    }.items()  # type: ignore[assignment]
    for name, values in families:
        counted.update({(name, key): value for key, value in values.items()})
    return counted


@only_sqlite
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_counter_ever_falls(ledger_db: LedgerDatabase, seed: int) -> None:
    """Tasks end, die, run again and are cancelled, and their counts are rolled up meanwhile."""
    lives = Lives(ledger_db, seed)
    before = counters(read(ledger_db))
    for step in range(150):
        lives.step()
        if step % 10 == 9:
            ledger_db.call(compaction.compact, AT_ONCE)
        now = counters(read(ledger_db))
        fallen = {key: (value, now[key]) for key, value in before.items() if now[key] < value}
        assert not fallen
        before = now
    assert before["replayed",]
    assert before["ended", Status.DEAD] > read(ledger_db).sums.final[Status.DEAD]


def test_the_sums_equal_the_rows(ledger_db: LedgerDatabase) -> None:
    """What is final, open and paid is what the tables say, before and after compaction."""
    lives = Lives(ledger_db, 7)
    for _ in range(60):
        lives.step()
    for _ in range(2):
        found = read(ledger_db)
        states = Counter(Status(row.status) for row in ledger_db.rows(tables.task))
        assert {status: found.sums.final[status] for status in FINAL} == {
            status: states[status] for status in FINAL
        }
        assert found.sums.open == states.total() - sum(states[status] for status in FINAL)
        assert found.sums.loaded == states.total()
        paid = [*ledger_db.rows(tables.task_result), *ledger_db.rows(tables.task_attempt)]
        assert found.sums.tokens.total() == sum(
            row.tokens_in + row.tokens_cached + row.tokens_out for row in paid
        )
        ledger_db.call(compaction.compact, AT_ONCE)


def test_routes_are_a_closed_set(ledger_db: LedgerDatabase) -> None:
    """A task may name any route; those that the settings do not name are one label."""
    lives = Lives(ledger_db, 3)
    for _ in range(60):
        lives.step()
    assert {route for route, _ in read(ledger_db).sums.tokens} <= {"default", "east", OTHER}
    assert {route for route, _ in read(ledger_db).sums.tokens} >= {"east", OTHER}


def test_attempts_are_counted_by_their_end(ledger_db: LedgerDatabase) -> None:
    """A task that was tried twice has two attempts; the class of a success is empty."""
    first, second, third = ledger_db.load("a", "b", "c")
    for task_id, outcome in ((first, RETRY), (second, DEAD), (third, SUCCEEDED)):
        ledger_db.settled(task_id, outcome)

    sums = read(ledger_db).sums

    assert {key[1:]: count for key, count in sums.attempts.items() if count} == {
        ("retried", "SERVER"): 1,
        ("dead", "BAD_REQUEST"): 1,
        ("succeeded", ""): 1,
    }
    assert sums.dead["BAD_REQUEST", "permanent"] == 1
    assert sum(sums.cost_micro.values()) == 3 * SPENT.cost_micro


def test_the_oldest_due_task_and_the_quarantine_are_seen(ledger_db: LedgerDatabase) -> None:
    """Both are of this group alone."""
    first, _ = ledger_db.load("a", "b")
    others = ledger_db.load(*map(str, range(1001)), group="other", into="another")
    ledger_db.ago(tables.task.c.due_at, 100, first)
    ledger_db.ago(tables.task.c.due_at, 5000, *others)

    found = read(ledger_db)

    assert 90 < found.oldest_due_s[Status.PENDING] < 1000
    assert found.oldest_due_s[Status.RETRYING] == 0
    assert found.status.quarantined == 0


@only_sqlite
def test_a_reading_counts_the_quarantine_and_the_orders_once(
    ledger_db: LedgerDatabase,
) -> None:
    """An exporter counts more records of the quarantine than a screen, and nothing twice."""
    set_aside(ledger_db, b"one", b"two")
    ledger_db.accept([new_task("a")], ledger_db.batch())
    (order,) = ledger_db.rows(tables.outbox)

    with ledger_db.statements() as statements:
        status = read(ledger_db).status

    assert status.quarantined == 2
    assert ledger_db.call(group_status.read_group, GROUP, max_quarantined=1).quarantined == 1
    assert status.oldest_order == order.id
    for table in (tables.quarantine, tables.outbox):
        assert sum(f"FROM {table.name} " in statement for statement in statements) == 1


def test_a_server_estimates_the_rows_of_each_table(ledger_db: LedgerDatabase) -> None:
    """The estimate follows the table, and names no table but those of the ledger."""
    ledger_db.load(*(f"task {number}" for number in range(300)))
    if ledger_db.database.sqlite:
        assert read(ledger_db).rows == {}
        return
    ledger_db.run(lambda c: c.execute(text("ANALYZE TABLE task")).all())

    rows = read(ledger_db).rows

    assert 150 < rows["task"] < 600
    assert {"tally", "task_attempt", "outbox"} <= rows.keys() <= tables.metadata.tables.keys()


def test_attempts_that_were_given_back_after_a_call_are_counted(
    ledger_db: LedgerDatabase,
) -> None:
    """A person sees what it costs that agents leave in the middle of calls."""
    first, second = ledger_db.load("a", "b")
    for task_id, outcome in ((first, Released(SPENT)), (second, Released())):
        ledger_db.settled(task_id, outcome)

    assert read(ledger_db).sums.abandoned.total() == 1


def test_purged_tasks_are_tasks_no_more_and_stay_counted(ledger_db: LedgerDatabase) -> None:
    """A gauge says what there is, a counter what has happened."""
    for batch, key in (("kept", "a"), ("purged", "b")):
        (task_id,) = ledger_db.load(key, into=batch)
        ledger_db.settled(task_id, DEAD)
    _, purged = (row.id for row in ledger_db.rows(tables.batch))
    before = counters(read(ledger_db))
    ledger_db.set(tables.batch, purged, purged_at=utc_now())

    sums = read(ledger_db).sums

    assert (sums.kept[Status.DEAD], sums.open) == (1, 0)
    assert counters(read(ledger_db)) == before


def test_the_last_verified_archive_of_the_group_is_seen(ledger_db: LedgerDatabase) -> None:
    """An archive that is being written is none yet."""
    ledger_db.load("a")
    ledger_db.load("b", group="other", into="another")
    assert read(ledger_db).archived_s is None
    own, others = (row.id for row in ledger_db.rows(tables.batch))
    for batch_id, verified_s in ((own, 500.0), (own, 100.0), (own, None), (others, 5.0)):
        values = {"batch_id": batch_id, "verified_at": verified_s and utc_after(-verified_s)}
        ledger_db.call(Connection.execute, insert(tables.archive).values(values))

    assert 95 < (read(ledger_db).archived_s or 0.0) < 400


@only_sqlite
def test_what_strangers_name_is_no_key_of_a_sum(ledger_db: LedgerDatabase) -> None:
    """Ten thousand routes, types, models, tenants and errors are one name each, or none."""
    into = ledger_db.batch().id
    rows = [
        {
            "batch_id": into,
            **{name: f"{name} {number}" for name in ("route", "type", "model", "tenant")},
            **{name: f"{name} {number}" for name in ("outcome", "disposition")},
            "state": int((Status.PENDING, Status.RETRYING, Status.DEAD)[number % 3]),
            **dict.fromkeys(("delta", "entered", "tokens_in", "cost_micro"), 1),
        }
        for number in range(10_000)
    ]
    ledger_db.run(lambda c: c.execute(insert(tables.tally_sum), rows))

    sums = read(ledger_db).sums

    assert {key for key, count in sums.attempts.items() if count} == {
        (OTHER, outcome, OTHER) for outcome in ("snoozed", "retried", "dead")
    }
    assert dict(sums.dead) == {(OTHER, OTHER): 3333}
    assert set(sums.cost_micro) == {(OTHER, outcome) for outcome in ("snoozed", "retried", "dead")}
    assert sums.tokens[OTHER, "in"] == 10_000
