"""Compaction moves old counts into the roll-ups; a reader sees the same sums all the time."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest
from sqlalchemy import Connection, Table, func, insert, select, update

from bench.reads import reads
from docllm.agent.ledger.counts import compaction
from docllm.agent.ledger.counts.compaction import CompactionLimits
from docllm.agent.ledger.guards import key_history
from docllm.agent.ledger.guards.looks import route_answered
from docllm.producer.ledger import tally
from docllm.producer.ledger.tally import OTHER_FINGERPRINTS
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.sql import (
    LONG_AGO_TIME,
    NEVER_TIME,
    Merge,
    insert_new,
    utc_after,
    utc_now,
)
from docllm.schemas.runtime import crash
from docllm.schemas.task.failures import Disposition, ErrorClass, TallyOutcome
from docllm.schemas.task.states import Status
from tests.support.ledger_database import BATCH, DEAD, GROUP, SUCCEEDED, LedgerDatabase

LIMITS = CompactionLimits(after_s=900.0, page=100, groups=5)
OLD_S = 1000.0
PRINT = b"f" * 16
Bug = Callable[[pytest.MonkeyPatch], None]
# A writer of SQLite has the whole ledger to itself.
only_servers = pytest.mark.parametrize("migrated", ["mariadb", "mysql"], indirect=True)


class KilledError(Exception):
    """The agent dies here."""


def change(number: int, **values: Any) -> dict[str, object]:
    """Return one of 300 different rows; every third is a replay. Costs need more than 32 bits."""
    sign = -1 if number % 3 == 2 else 1
    row = {
        "batch_id": 1 + number % 2,
        "type": "chat",
        "route": f"route {number % 5}",
        "model": "llama",
        "tenant": "",
        "state": int(Status.DEAD if number % 4 else Status.SUCCEEDED),
        "outcome": f"outcome {number % 3}",
        "fingerprint": bytes([number % 2]) * 16,
        "disposition": Disposition.PERMANENT,
        "delta": sign * (1 + number % 7),
        "tokens_in": number,
        "tokens_out": 2,
        "tokens_cached": 1,
        "cost_micro": 10_000_000_000,
        "unsure_micro": 5,
        "unpriced": number % 2,
        "dead_attempts": sign * 2,
        "dead_tokens_in": sign * number,
        "dead_tokens_out": sign,
        "dead_cost_micro": sign * 30_000_000_000,
        "dead_unpriced": sign * 3,
    }
    return row | values


def add(ledger_db: LedgerDatabase, rows: Sequence[dict[str, object]], age_s: float = OLD_S) -> None:
    ledger_db.run(lambda c: c.execute(insert(tables.tally), list(rows)))
    young = tables.tally.c.created_at > utc_after(-60)
    aged = update(tables.tally).where(young).values(created_at=utc_after(-age_s))
    ledger_db.run(lambda c: c.execute(aged))


def compacted(ledger_db: LedgerDatabase, limits: CompactionLimits = LIMITS) -> list[int]:
    """Compact until nothing is left; return how many rows each page had."""
    pages = []
    while count := ledger_db.call(compaction.compact, limits):
        pages.append(count)
    return pages


def total(ledger_db: LedgerDatabase, source: Any) -> list[tuple[object, ...]]:
    """Return the sums of a source by batch and route."""
    names = [
        column.name
        for column in source.c
        if column.type.python_type is int
        and column.name not in {"batch_id", "state", "sample_task", "width_s"}
    ]
    keys = [source.c.batch_id, source.c.route]
    query = select(*keys, *(func.sum(source.c[name]).label(name) for name in names))
    rows = ledger_db.run(lambda c: c.execute(query.group_by(*keys).order_by(*keys)).all())
    return [(row.batch_id, row.route, *(int(row._mapping[name]) for name in names)) for row in rows]


def seen(ledger_db: LedgerDatabase) -> list[list[tuple[object, ...]]]:
    """Return the sums that a reader sees."""
    everything = [tally.counts(lambda _: ()), tally.failures(lambda _: ())]
    return [total(ledger_db, source) for source in everything]


def test_every_sum_stays(ledger_db: LedgerDatabase) -> None:
    """A reader sees the same before compaction, after each page, and when nothing is left."""
    add(ledger_db, [change(number) for number in range(250)])
    before = seen(ledger_db)
    pages = []

    while count := ledger_db.call(compaction.compact, LIMITS):
        pages.append(count)
        assert seen(ledger_db) == before

    assert pages == [100, 100, 50]
    assert ledger_db.count(tables.tally) == 0
    assert before[0]
    assert before[1]


def test_what_comes_later_joins_the_sums(ledger_db: LedgerDatabase) -> None:
    """Each key has one row, however often it is compacted."""
    add(ledger_db, [change(number) for number in range(30)])
    compacted(ledger_db)
    rows = {table: ledger_db.count(table) for table in (tables.tally_sum, tables.failure_group)}

    add(ledger_db, [change(number) for number in range(30)])
    before = seen(ledger_db)
    compacted(ledger_db)

    assert seen(ledger_db) == before
    assert {table: ledger_db.count(table) for table in rows} == rows


def deletes_without_adding(patch: pytest.MonkeyPatch) -> None:
    """Forget the page."""
    patch.setattr(compaction, "_add", lambda *_: None)


def adds_twice(patch: pytest.MonkeyPatch) -> None:
    """Add the page again, as if its rows had stayed in the tally."""
    add_page = compaction._add

    def twice(*page: Any) -> None:
        add_page(*page)
        add_page(*page)

    patch.setattr(compaction, "_add", twice)


def forgets_replays(patch: pytest.MonkeyPatch) -> None:
    """Add only what entered to the groups of failures."""
    failure = compaction._failure

    def entered(*row: Any) -> dict[str, Any]:
        roll = failure(*row)
        return roll | {"dead": roll["entered"]}

    patch.setattr(compaction, "_failure", entered)


def keeps_the_first(patch: pytest.MonkeyPatch) -> None:
    """Let a sum stay as it is when more counts of its key come."""
    patch.setattr(compaction, "_COUNTS", Merge(greatest=("newest_at",)))


def replays_name_no_route(patch: pytest.MonkeyPatch) -> None:
    """Book what leaves a state to no route."""
    count = compaction._count

    def moved(row: Any) -> dict[str, Any]:
        return count(row) | ({"route": ""} if row.delta < 0 else {})

    patch.setattr(compaction, "_count", moved)


@pytest.mark.parametrize(
    "bug",
    [
        deletes_without_adding,
        adds_twice,
        forgets_replays,
        keeps_the_first,
        replays_name_no_route,
    ],
)
def test_a_wrong_compaction_is_seen(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch, bug: Bug
) -> None:
    """Each of these mistakes changes what a reader sees."""
    add(ledger_db, [change(number) for number in range(150)])
    before = seen(ledger_db)
    bug(monkeypatch)

    compacted(ledger_db)

    assert seen(ledger_db) != before


def test_young_counts_stay_rows(ledger_db: LedgerDatabase) -> None:
    """Rates and guards need the last minutes row by row."""
    add(ledger_db, [change(1)], age_s=LIMITS.after_s - 60)
    add(ledger_db, [change(2), change(3)])

    assert compacted(ledger_db) == [2]
    assert ledger_db.count(tables.tally) == 1


@only_servers
def test_agents_take_turns(ledger_db: LedgerDatabase) -> None:
    """While one agent compacts, the others do nothing, and do not wait either."""
    add(ledger_db, [change(1)])
    turn = {"name": compaction.TURN, "next": 0}
    ledger_db.run(lambda c: c.execute(insert_new(c, tables.id_block), turn))
    taken, over = threading.Event(), threading.Event()

    def hold(connection: Any) -> None:
        mine = select(tables.id_block).where(tables.id_block.c.name == compaction.TURN)
        connection.execute(mine.with_for_update())
        taken.set()
        over.wait(60)

    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(ledger_db.run, hold)
        taken.wait(60)
        count = ledger_db.call(compaction.compact, LIMITS)
        over.set()
        held.result()

    assert count == 0
    assert ledger_db.call(compaction.compact, LIMITS) == 1


def test_agents_that_compact_at_once_keep_every_sum(ledger_db: LedgerDatabase) -> None:
    """Readers beside them see every sum too."""
    add(ledger_db, [change(number) for number in range(1500)])
    before = seen(ledger_db)

    with ThreadPoolExecutor(4) as pool:
        work = [pool.submit(compacted, ledger_db) for _ in range(3)]
        sights = [pool.submit(seen, ledger_db).result() for _ in range(5)]
        moved = sum(sum(pages.result()) for pages in work)

    assert moved == 1500
    assert sights == [before] * 5
    assert seen(ledger_db) == before


@pytest.mark.parametrize("page", [0, 1])
def test_a_death_within_a_page_changes_nothing(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """An agent dies after it has added a page, and before it has deleted it."""
    add(ledger_db, [change(number) for number in range(150)])
    before = seen(ledger_db)
    points: list[str] = []

    def die(point: str) -> None:
        points.append(point)
        if len(points) > page:
            raise KilledError

    monkeypatch.setattr(crash, "reach", die)
    with pytest.raises(KilledError):
        compacted(ledger_db)
    monkeypatch.undo()

    assert seen(ledger_db) == before
    assert ledger_db.count(tables.tally) == 150 - page * LIMITS.page
    compacted(ledger_db)
    assert seen(ledger_db) == before


def test_a_replay_leaves_the_group_of_its_death(ledger_db: LedgerDatabase) -> None:
    """The replay's row names the death's route, so no sum falls below zero; what entered stays."""
    died = {"state": int(Status.DEAD), "route": "gpu", "delta": 3, "dead_attempts": 9}
    gone = died | {"delta": -2, "dead_attempts": -6}
    add(ledger_db, [change(1, **died), change(1, **gone)])
    compacted(ledger_db)
    add(ledger_db, [change(1, **died | {"delta": -1, "dead_attempts": -3})])
    compacted(ledger_db)

    (group,) = ledger_db.rows(tables.failure_group)
    (count,) = ledger_db.rows(tables.tally_sum)
    assert (group.dead, group.entered, group.attempts) == (0, 3, 0)
    assert (count.delta, count.entered) == (0, 3)


def test_replays_have_no_times(ledger_db: LedgerDatabase) -> None:
    """A replay that is counted before its death leaves the times open."""
    add(ledger_db, [change(1, state=int(Status.DEAD), delta=-1)])
    compacted(ledger_db)

    (group,) = ledger_db.rows(tables.failure_group)
    (count,) = ledger_db.rows(tables.tally_sum)
    assert (group.first_at, group.last_at) == (NEVER_TIME, LONG_AGO_TIME)
    assert count.newest_at == LONG_AGO_TIME


def test_times_are_those_of_the_first_and_the_newest_death(ledger_db: LedgerDatabase) -> None:
    """Pages come in the order of time, and a later page does not move the beginning."""
    died = change(1, state=int(Status.DEAD), delta=1)
    for age_s in (7200, 3600, 1800):
        add(ledger_db, [died], age_s)
    first, *_, last = (row.created_at for row in ledger_db.rows(tables.tally))
    compacted(ledger_db, CompactionLimits(page=1))

    (group,) = ledger_db.rows(tables.failure_group)
    (count,) = ledger_db.rows(tables.tally_sum)
    assert (group.first_at, group.last_at, count.newest_at) == (first, last, last)


def test_only_deaths_make_groups(ledger_db: LedgerDatabase) -> None:
    """Retries have fingerprints too; a group names its error class and one of its dead tasks."""
    (task_id,) = ledger_db.load("a")
    ledger_db.settled(task_id, DEAD)
    counted = ledger_db.rows(tables.tally)[-1]
    of_death = {
        "batch_id": counted.batch_id,
        "type": counted.type,
        "tenant": counted.tenant,
        "route": counted.route,
    }
    ledger_db.set(tables.dead_letter, task_id, **of_death)
    add(ledger_db, [change(1, state=int(Status.RETRYING))])

    compacted(ledger_db)

    (group,) = ledger_db.rows(tables.failure_group)
    assert (group.error_class, group.sample_task) == (ErrorClass.BAD_REQUEST, task_id)
    assert (group.batch_id, group.fingerprint) == (counted.batch_id, counted.fingerprint)


def test_a_group_keeps_its_sample(ledger_db: LedgerDatabase) -> None:
    """The sample may be replayed by now; a later page looks for none."""
    key = {"batch_id": 1, "type": "chat", "tenant": "", "route": "gpu"}
    key |= {"disposition": Disposition.PERMANENT, "fingerprint": PRINT}
    ledger_db.run(lambda c: c.execute(insert(tables.failure_group), key | {"sample_task": 5}))
    letter = key | {"task_id": 9, "fence": 0}
    ledger_db.run(lambda c: c.execute(insert(tables.dead_letter), letter))
    died = change(1, state=int(Status.DEAD), route="gpu", fingerprint=PRINT, delta=1)
    add(ledger_db, [died | {"batch_id": 1}])

    compacted(ledger_db)

    assert [row.sample_task for row in ledger_db.rows(tables.failure_group)] == [5]


def test_a_batch_has_a_limited_number_of_groups(ledger_db: LedgerDatabase) -> None:
    """Errors that name what differs in each task share a group once there are many."""
    deaths = [
        change(1, batch_id=1, state=int(Status.DEAD), fingerprint=number.to_bytes(16), delta=1)
        for number in range(8)
    ]
    add(ledger_db, deaths)
    before = seen(ledger_db)
    compacted(ledger_db, CompactionLimits(page=3, groups=LIMITS.groups))
    add(ledger_db, [deaths[0] | {"delta": -1}, deaths[7] | {"delta": -1}])
    add(ledger_db, [deaths[7] | {"batch_id": 2}])
    compacted(ledger_db)

    dead = {
        (row.batch_id, bytes(row.fingerprint)): row.dead
        for row in ledger_db.rows(tables.failure_group)
    }
    own = {(1, number.to_bytes(16)): int(number > 0) for number in range(5)}
    assert dead == own | {(1, OTHER_FINGERPRINTS): 2, (2, (7).to_bytes(16)): 1}
    assert len(before[1]) == 1


def test_the_series_has_minutes_and_hours(ledger_db: LedgerDatabase) -> None:
    """Counts of a group's batches join by route, state and outcome; replays enter nothing."""
    batch_id = ledger_db.batch(BATCH).id
    usual: dict[str, Any] = {
        "batch_id": batch_id,
        "route": "gpu",
        "state": int(Status.DEAD),
        "outcome": "X",
    }
    noon = ledger_db.run(lambda c: c.execute(select(utc_now())).scalar_one())
    hour = datetime.fromisoformat(str(noon)).replace(minute=0, second=0, microsecond=0)
    hour -= timedelta(hours=2)
    for second, delta in ((30, 2), (59, 5), (60, 1), (61, -4)):
        row = change(0, **usual, delta=delta, tokens_in=10, tokens_out=1, cost_micro=7)
        at = {"created_at": hour + timedelta(seconds=second)}
        ledger_db.call(Connection.execute, insert(tables.tally), row | at)

    compacted(ledger_db)

    series = [
        (row.group_name, row.width_s, row.starts_at, row.entered, row.tokens_in, row.cost_micro)
        for row in ledger_db.rows(tables.tally_series)
    ]
    assert series == [
        (GROUP, 60, hour, 7, 20, 14),
        (GROUP, 60, hour + timedelta(minutes=1), 1, 20, 14),
        (GROUP, 3600, hour, 8, 40, 28),
    ]


@pytest.mark.parametrize(("width_s", "kept_s"), [(60, 48 * 3600), (3600, 400 * 86400)])
def test_old_parts_of_the_series_are_deleted(
    ledger_db: LedgerDatabase, width_s: int, kept_s: int
) -> None:
    """A few minutes or hours at a time, the oldest first."""
    now = datetime.fromisoformat(
        str(ledger_db.run(lambda c: c.execute(select(utc_now())).scalar_one()))
    )
    most = compaction.FORGOTTEN_AT_ONCE
    key = {"group_name": GROUP, "width_s": width_s, "state": int(Status.DEAD), "outcome": "X"}
    rows = [
        key | {"route": route, "starts_at": now - timedelta(seconds=kept_s - 600 + width_s * n)}
        for n, route in product(range(2 * most), ("a", "b"))
    ]
    ledger_db.run(lambda c: c.execute(insert(tables.tally_series), rows))
    kept = sum(row["starts_at"] > now - timedelta(seconds=kept_s) for row in rows)  # type: ignore[operator]

    ledger_db.call(compaction.compact, LIMITS)
    assert ledger_db.count(tables.tally_series) == len(rows) - 2 * most
    ledger_db.call(compaction.compact, LIMITS)

    assert ledger_db.count(tables.tally_series) == kept


def test_an_answered_prompt_is_remembered(ledger_db: LedgerDatabase) -> None:
    """Our own prompts belong to no batch; a guard's reason still names the newest answer."""
    ledger_db.call(route_answered, "gpu")
    ledger_db.ago(tables.tally.c.created_at, OLD_S)
    said = ledger_db.call(key_history.silence, GROUP, "gpu")

    compacted(ledger_db)

    assert "since" in said
    assert ledger_db.call(key_history.silence, GROUP, "gpu") == said
    assert [row.group_name for row in ledger_db.rows(tables.tally_series)] == ["", ""]


def test_a_success_is_known_for_ever(ledger_db: LedgerDatabase) -> None:
    """A key that once succeeded is never fruitless."""
    (task_id,) = ledger_db.load("a")
    ledger_db.settled(task_id, SUCCEEDED)
    key = (ledger_db.batch().id, "document", "route")
    ledger_db.ago(tables.tally.c.created_at, OLD_S)

    compacted(ledger_db)

    assert ledger_db.call(key_history.any_success, *key)
    assert not ledger_db.call(key_history.any_success, key[0], "document", "other")


def test_refusals_of_groups_that_began_earlier_are_deaths_only(ledger_db: LedgerDatabase) -> None:
    """A rolled-up group does not know when each of its tasks died.

    So its deaths may count against a refusal, and never as refusals of one kind.
    """
    key = (1, "chat", "gpu")
    refused: dict[str, Any] = {
        "batch_id": 1,
        "route": "gpu",
        "state": int(Status.DEAD),
        "outcome": ErrorClass.BAD_REQUEST,
        "delta": 1,
    }
    early, late = (refused | {"fingerprint": bytes([number]) * 16} for number in (1, 2))
    add(ledger_db, [change(1, **early)], 7200)
    since = ledger_db.rows(tables.tally)[0].created_at + timedelta(minutes=1)
    add(ledger_db, [change(1, **early), change(1, **late)], 3600)
    compacted(ledger_db)
    add(ledger_db, [change(1, **early)], 30)

    everything = ledger_db.call(key_history.refusals, *key, since=None)
    later = ledger_db.call(key_history.refusals, *key, since=since)

    assert everything == (4, {bytes([1]) * 16: 3, bytes([2]) * 16: 1})
    # One death of the early group was before; which one, nobody knows.
    assert later == (4, {bytes([1]) * 16: 1, bytes([2]) * 16: 1})


def test_the_page_is_the_oldest(ledger_db: LedgerDatabase) -> None:
    """What was counted first is moved first."""
    add(ledger_db, [change(1)], 2000)
    add(ledger_db, [change(2)], 3000)

    ledger_db.call(compaction.compact, CompactionLimits(page=1))

    assert [row.tokens_in for row in ledger_db.rows(tables.tally)] == [1]


def test_loads_are_known_after_compaction(ledger_db: LedgerDatabase) -> None:
    """A load that goes on later says how many tasks the batch has."""
    ledger_db.load("a", "b")
    ledger_db.ago(tables.tally.c.created_at, OLD_S)

    compacted(ledger_db)

    assert ledger_db.call(tally.loaded, ledger_db.batch().id) == 2
    assert ledger_db.rows(tables.tally_sum)[0].outcome == TallyOutcome.LOADED


def test_a_roll_up_is_one_row_for_each_key(ledger_db: LedgerDatabase) -> None:
    """The key is the table's own; nothing else tells two counts apart."""
    add(ledger_db, [change(number) for number in range(60)])
    compacted(ledger_db)

    def keys(table: Table[Any]) -> int:
        counted = select(*table.primary_key).distinct().subquery()
        return ledger_db.run(
            lambda c: c.execute(select(func.count()).select_from(counted)).scalar_one()
        )

    for table in (tables.tally_sum, tables.failure_group, tables.tally_series):
        assert keys(table) == ledger_db.count(table) > 0


def test_a_page_costs_the_same_however_many_counts_wait(ledger_db: LedgerDatabase) -> None:
    """Compaction that was away for a day reads no more for a page."""

    def page(connection: Connection) -> object:
        return compaction.compact(connection, LIMITS)

    rows_read = []
    for waiting in (200, 4000):
        add(ledger_db, [change(number % 250) for number in range(waiting)])
        ledger_db.run(page)
        rows_read.append(ledger_db.call(reads, page))
        compacted(ledger_db)

    assert rows_read[1] < 1.2 * rows_read[0]
