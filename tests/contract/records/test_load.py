"""A load accepts each task once, whatever is lost, and reports the tasks it refused."""

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest

from docllm.producer.ledger import store
from docllm.producer.ledger.new_tasks import NewTask
from docllm.producer.ledger.outbox import unpack
from docllm.schemas.errors import ConfigError, UnsafeStateError
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.sql import NEVER_TIME
from docllm.schemas.task.states import Status
from tests.support.ledger_database import GROUP, LedgerDatabase, new_task


def snapshot(ledger_db: LedgerDatabase) -> list[Sequence[object]]:
    """Return all rows except the counter, whose ids a failed try may use up."""
    return [
        ledger_db.rows(table)
        for table in tables.metadata.sorted_tables
        if table is not tables.id_block
    ]


def test_a_new_task_is_rows_inputs_order_and_count(ledger_db: LedgerDatabase) -> None:
    """One transaction writes the task, its bytes, its publish order and its count."""
    into = ledger_db.batch()
    tasks = [new_task("b", b"\x00\xff value", raw_key=None), new_task("a")]

    accepted = ledger_db.accept(tasks, into)

    assert accepted.new.keys() == {0, 1}
    assert (accepted.known, accepted.clashing) == ((), ())
    (order,) = accepted.orders
    assert (order.group, order.destination) == (GROUP, "tasks")
    assert (
        order.items
        == unpack(ledger_db.rows(tables.outbox)[0].items)
        == tuple((0, task_id, 0) for task_id in accepted.new.values())
    )
    first = ledger_db.task(accepted.new[0])
    assert (first.task_key, first.status, first.fence, first.owner, first.attempt) == (
        b"b",
        Status.PENDING,
        0,
        0,
        0,
    )
    assert (first.max_attempts, first.type, first.expires_at) == (5, "document", NEVER_TIME)
    inputs = {row.task_id: (row.raw_key, row.body) for row in ledger_db.rows(tables.task_input)}
    assert inputs == {
        accepted.new[0]: (None, b"\x00\xff value"),
        accepted.new[1]: (b"raw", b"value of a"),
    }
    (count,) = ledger_db.rows(tables.tally)
    assert (count.batch_id, count.state, count.outcome, count.delta) == (
        into.id,
        Status.PENDING,
        "loaded",
        2,
    )


def test_a_deadline_is_kept(ledger_db: LedgerDatabase) -> None:
    """A task's deadline is stored as it was given, in UTC."""
    end = datetime(2031, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001 - UTC without a zone, as stored
    task = new_task("a")
    due = NewTask(
        key=task.key,
        digest=task.digest,
        value=task.value,
        type=task.type,
        tenant="tenant",
        max_attempts=7,
        expires_at=end,
        raw_key=None,
        headers=b"[]",
    )

    accepted = ledger_db.accept([due], ledger_db.batch())

    row = ledger_db.task(accepted.new[0])
    assert (row.expires_at, row.max_attempts, row.tenant) == (end, 7, "tenant")


def test_the_same_file_again_loads_nothing(ledger_db: LedgerDatabase) -> None:
    """A task that is there with the same content is known: no row, no order, no count."""
    into = ledger_db.batch()
    ledger_db.accept([new_task("a"), new_task("b")], into)
    before = snapshot(ledger_db)

    again = ledger_db.accept([new_task("a"), new_task("b")], into)

    assert (again.new, again.known, again.clashing, again.orders) == ({}, (0, 1), (), ())
    assert snapshot(ledger_db) == before


def test_other_content_under_a_known_key_clashes(ledger_db: LedgerDatabase) -> None:
    """A clash is reported by its position and changes nothing; the other tasks are loaded."""
    into = ledger_db.batch()
    ledger_db.accept([new_task("a")], into)

    accepted = ledger_db.accept([new_task("a", b"other"), new_task("b"), new_task("a")], into)

    assert (list(accepted.new), accepted.known, accepted.clashing) == ([1], (2,), (0,))
    assert ledger_db.rows(tables.task_input)[0].body == b"value of a"


def test_a_key_twice_in_one_chunk_is_loaded_once(ledger_db: LedgerDatabase) -> None:
    """The first of equal lines is new, the second known; other content clashes."""
    accepted = ledger_db.accept(
        [new_task("a"), new_task("a"), new_task("a", b"other"), new_task("b")], ledger_db.batch()
    )

    assert (list(accepted.new), accepted.known, accepted.clashing) == ([0, 3], (1,), (2,))
    assert [row.body for row in ledger_db.rows(tables.task_input)] == [b"value of a", b"value of b"]
    assert sum(row.delta for row in ledger_db.rows(tables.tally)) == 2


def test_keys_that_only_look_alike_are_different_tasks(ledger_db: LedgerDatabase) -> None:
    """Case, accents, trailing blanks and zero bytes make different keys.

    This holds on a server whose default is another collation.
    """
    keys = ["a", "A", "a ", "á", "a\0", "ß", "ss", "\U0001f600", "\U0001f601"]

    accepted = ledger_db.accept([new_task(key) for key in keys], ledger_db.batch())

    assert len(accepted.new) == len(keys)


def test_the_same_key_in_another_batch_is_another_task(ledger_db: LedgerDatabase) -> None:
    """Keys are unique within their batch only."""
    first = ledger_db.accept([new_task("a")], ledger_db.batch("one"))
    second = ledger_db.accept([new_task("a")], ledger_db.batch("two"))

    assert first.new[0] != second.new[0]


def test_a_load_that_runs_again_after_a_lost_commit_counts_once(ledger_db: LedgerDatabase) -> None:
    """The same transaction a second time finds its own rows and gives the same answer.

    It writes nothing, and the order is left to the relay.
    """
    into = ledger_db.batch()
    ledger_db.accept([new_task("known")], into)
    tasks = [new_task("a"), new_task("known"), new_task("known", b"other"), new_task("b")]
    first_id = ledger_db.call(store.take_ids, len(tasks))
    first = ledger_db.call(store.accept, into, tasks, first_id)
    before = snapshot(ledger_db)

    again = ledger_db.call(store.accept, into, tasks, first_id)

    assert (again.new, again.known, again.clashing) == (first.new, first.known, first.clashing)
    assert again.orders == ()
    assert snapshot(ledger_db) == before


def test_a_cancelled_batch_takes_nothing_more(ledger_db: LedgerDatabase) -> None:
    """Loading into a cancelled batch is refused, and the message says what to do."""
    into = ledger_db.batch()
    ledger_db.cancel()

    with pytest.raises(UnsafeStateError, match="--batch"):
        ledger_db.accept([new_task("a")], into)

    assert ledger_db.count(tables.task) == 0


def test_a_batch_of_another_group_is_refused(ledger_db: LedgerDatabase) -> None:
    """Batch names are unique over all groups: the second group must choose another name."""
    ledger_db.batch("one", "theirs")

    with pytest.raises(ConfigError, match="belongs to group 'theirs'"):
        ledger_db.call(store.open_batch, "one", GROUP, store.Origin.LOAD)


def test_opening_a_batch_again_gives_the_same_batch(ledger_db: LedgerDatabase) -> None:
    """An existing batch is found, cancelled or not; names differ by case."""
    first = ledger_db.batch("One")
    ledger_db.cancel("One")

    assert (ledger_db.batch("One").id, ledger_db.batch("One").cancelled) == (first.id, True)
    assert ledger_db.batch("one").id != first.id
    assert ledger_db.call(store.find_batch, "none") is None


def test_a_batch_is_closed_once(ledger_db: LedgerDatabase) -> None:
    """The end of the input is noted, and stays when the same file is loaded again."""
    into = ledger_db.batch()
    ledger_db.call(store.close_batch, into)
    closed = ledger_db.rows(tables.batch)[0].closed_at

    ledger_db.call(store.close_batch, into)

    assert closed is not None
    assert ledger_db.rows(tables.batch)[0].closed_at == closed


def test_two_loaders_never_get_the_same_ids(ledger_db: LedgerDatabase) -> None:
    """Blocks of ids taken by several threads at once do not overlap."""
    counts = [1, 7, 1000, 3] * 10

    with ThreadPoolExecutor(4) as pool:
        firsts = list(pool.map(lambda count: ledger_db.call(store.take_ids, count), counts))

    blocks = sorted((first, first + count) for first, count in zip(firsts, counts, strict=True))
    assert all(end <= following for (_, end), (following, _) in itertools.pairwise(blocks))


def test_two_loads_of_one_file_at_once_load_it_once(ledger_db: LedgerDatabase) -> None:
    """For each task exactly one of two simultaneous loads reports it as new."""
    into = ledger_db.batch()
    chunks = [[new_task(f"{chunk}/{number}") for number in range(50)] for chunk in range(4)]

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda chunk: ledger_db.accept(chunk, into), chunks + chunks[::-1]))

    assert (
        sum(len(result.new) for result in results)
        == sum(len(result.known) for result in results)
        == 200
    )
    assert not any(result.clashing for result in results)
    assert ledger_db.count(tables.task) == ledger_db.count(tables.task_input) == 200
    assert sum(row.delta for row in ledger_db.rows(tables.tally)) == 200
    assert sum(len(unpack(row.items)) for row in ledger_db.rows(tables.outbox)) == 200


def test_a_value_that_does_not_fit_is_refused_and_never_cut(ledger_db: LedgerDatabase) -> None:
    """A server refuses a key that is too long for its column and never shortens it."""
    if ledger_db.database.sqlite:
        # SQLite has no limits: lines are checked before.
        assert ledger_db.accept([new_task("k" * 192)], ledger_db.batch()).new
        return
    into = ledger_db.batch()
    with pytest.raises(Exception, match="Data too long"):
        ledger_db.accept([new_task("k" * 192)], into)
    assert ledger_db.count(tables.task) == 0
