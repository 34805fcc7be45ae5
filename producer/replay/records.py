"""Replays quarantined records, one page per transaction.

Each record is read again as the intake reads it, by today's rules. A record that is a valid task
line now becomes a task, once; its row stays and shows when. A record that still is no task stays as
it was.

Tested by tests/contract/test_ledger_replay_records.py.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, select, update

from producer.ledger import store
from producer.ledger.outbox import QUARANTINE
from producer.ledger.quarantine import KEPT_BYTES, headers_of
from producer.loading import foreign_records
from producer.ports import Order
from producer.replay import runs
from producer.replay.runs import ItemState, Page
from schemas.errors import ConfigError, UnsafeStateError
from schemas.ledger.sql import utc_now
from schemas.ledger.tables import quarantine
from schemas.task.envelope import RawHeaders
from schemas.task.line import LineError

Unread = dict[int, str]


def apply(
    connection: Connection,
    group: str,
    run_id: int,
    max_attempts_of: Callable[[str], int],
    after: int,
    ids: range,
) -> Page | None:
    """Replay records of a run above `after`, one for each of the new task `ids` at most.

    Returns None if no record waits. If an earlier try used the ids and its answer was lost, the
    page is empty: the next records need ids of their own.
    """
    if store.any_used(connection, ids):
        return Page(after, 0)
    numbers = [number for number, _ in runs.take(connection, run_id, QUARANTINE, after, len(ids))]
    if not numbers:
        return None
    unreplayed = (
        select(quarantine)
        .where(quarantine.c.id.in_(numbers), quarantine.c.replayed_at.is_(None))
        .order_by(quarantine.c.id)
    )
    rows = connection.execute(unreplayed.with_for_update()).all()
    unread, orders = _accept_all(connection, group, rows, max_attempts_of, ids.start)
    accepted = {row.id for row in rows} - unread.keys()
    connection.execute(
        update(quarantine)
        .where(quarantine.c.id.in_(sorted(accepted)))
        .values(replayed_at=utc_now())
    )
    runs.mark(connection, run_id, QUARANTINE, accepted, ItemState.REPLAYED)
    runs.mark(connection, run_id, QUARANTINE, unread, ItemState.UNREAD)
    runs.mark(
        connection, run_id, QUARANTINE, set(numbers) - accepted - unread.keys(), ItemState.SKIPPED
    )
    return Page(max(numbers), len(numbers), tuple(orders), unread=tuple(unread.items()))


def _accept_all(
    connection: Connection,
    group: str,
    rows: Sequence[Row[Any]],
    max_attempts_of: Callable[[str], int],
    first_id: int,
) -> tuple[Unread, list[Order]]:
    by_batch: dict[str, list[tuple[int, store.NewTask]]] = {}
    unread: Unread = {}
    for row in rows:
        try:
            name, task = foreign_records.read(
                row.record_key, _value(row), _headers(row.headers), group, max_attempts_of
            )
            by_batch.setdefault(name, []).append((row.id, task))
        except LineError as error:
            unread[row.id] = foreign_records.reason(error)
    orders: list[Order] = []
    for name, of_batch in sorted(by_batch.items()):
        orders += _accept(connection, group, name, of_batch, unread, first_id)
        first_id += len(of_batch)
    return unread, orders


def _accept(
    connection: Connection,
    group: str,
    name: str,
    of_batch: Sequence[tuple[int, store.NewTask]],
    unread: Unread,
    first_id: int,
) -> Sequence[Order]:
    """Accept tasks into their batch; note the records that the batch refuses."""
    tasks = [task for _, task in of_batch]
    try:
        into = store.open_batch(connection, name, group, store.Origin.QUARANTINE)
        accepted = store.accept(connection, into, tasks, first_id)
    except (ConfigError, UnsafeStateError) as error:
        unread |= dict.fromkeys((number for number, _ in of_batch), str(error))
        return ()
    unread |= dict.fromkeys(
        (of_batch[position][0] for position in accepted.clashing), foreign_records.clash(name)
    )
    return accepted.orders


def _value(row: Row[Any]) -> bytes:
    """Return the record's value; raise LineError if the ledger does not have all of it."""
    where = f"{row.topic}/{row.part}/{row.record_offset}"
    if row.value_digest is not None:
        fix = (
            f"the whole record is at {where} as long as its topic keeps it; "
            "produce it again to the inbox"
        )
        raise LineError(
            "value",
            f"had more than the {KEPT_BYTES >> 20} MiB that a task may have, and was cut",
            fix,
        )
    if row.record_value is None:
        raise LineError(
            "value",
            "is missing",
            f"look for the record at {where}; a record without a value is not a task",
        )
    return bytes(row.record_value)


def _headers(packed: bytes | None) -> RawHeaders:
    return [(name, None if value is None else value.encode()) for name, value in headers_of(packed)]
