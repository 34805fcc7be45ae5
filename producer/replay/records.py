"""Replays quarantined records, one page per transaction.

A record that is a valid task line by today's rules becomes a task, once; its row stays and shows
when. A record that still is no task stays as it was, and its item says why. The records are read
before the transaction, since some take seconds.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, select, update

from docllm.producer.ledger import batch_options, store
from docllm.producer.ledger.new_tasks import NewTask
from docllm.producer.ledger.outbox import QUARANTINE
from docllm.producer.ledger.replay_progress import ItemState
from docllm.producer.loading import foreign_records
from docllm.producer.loading.foreign_records import ReadLine
from docllm.producer.loading.task_row import give_defaults
from docllm.producer.ports import Order
from docllm.producer.replay import runs
from docllm.producer.replay.runs import Page
from docllm.schemas.errors import ConfigError, UnsafeStateError
from docllm.schemas.ledger.sql import utc_now
from docllm.schemas.ledger.tables import quarantine

Reasons = dict[int, str]  # why records are no tasks, by number


def kept(connection: Connection, run_id: int, after: int, limit: int) -> Sequence[Row[Any]]:
    """Return the rows of a run's next waiting records above `after`, at most `limit`."""
    numbers = runs.next_records(connection, run_id, after, limit)
    query = select(quarantine).where(quarantine.c.id.in_(numbers)).order_by(quarantine.c.id)
    return connection.execute(query).all() if numbers else ()


def apply(
    connection: Connection,
    group: str,
    run_id: int,
    lines: Mapping[int, ReadLine],
    first_id: int,
    *,
    joins: bool = False,
) -> Page:
    """Replay records that were read. Each new task gets an id from `first_id` on.

    If an earlier try has used these ids and its answer was lost, return an empty page, so that the
    next records get new ids. With `joins`, records may add to loaded batches, as the inbox's may.
    """
    if store.any_used(connection, range(first_id, first_id + len(lines))):
        return Page(min(lines) - 1, 0)
    numbers = runs.take_records(connection, run_id, lines)
    waiting = _unreplayed(connection, numbers)
    reasons: Reasons = {}
    by_batch: dict[str, list[tuple[int, NewTask]]] = {}
    for number in waiting:
        line = lines[number]
        if isinstance(line, str):
            reasons[number] = line
        else:
            by_batch.setdefault(line[0], []).append((number, line[1]))
    orders: list[Order] = []
    for name, numbered_tasks in sorted(by_batch.items()):
        orders += _accept(connection, group, name, numbered_tasks, reasons, first_id, joins=joins)
        first_id += len(numbered_tasks)
    accepted = set(waiting) - reasons.keys()
    replayed = quarantine.c.id.in_(sorted(accepted))
    connection.execute(update(quarantine).where(replayed).values(replayed_at=utc_now()))
    runs.note_reasons(connection, run_id, reasons)
    ids_by_state: dict[ItemState, Collection[int]] = {
        ItemState.REPLAYED: accepted,
        ItemState.UNREAD: reasons,
        ItemState.SKIPPED: set(numbers) - set(waiting),
    }
    runs.finish(connection, run_id, QUARANTINE, ids_by_state)
    return Page(max(lines), len(numbers), tuple(orders))


def _unreplayed(connection: Connection, numbers: Sequence[int]) -> Sequence[int]:
    """Lock those of these records that no other run has replayed; return their numbers."""
    query = (
        select(quarantine.c.id)
        .where(quarantine.c.id.in_(numbers), quarantine.c.replayed_at.is_(None))
        .order_by(quarantine.c.id)
    )
    return connection.execute(query.with_for_update()).scalars().all() if numbers else ()


def _accept(
    connection: Connection,
    group: str,
    name: str,
    numbered_tasks: Sequence[tuple[int, NewTask]],
    reasons: Reasons,
    first_id: int,
    *,
    joins: bool = False,
) -> Sequence[Order]:
    """Accept tasks into their batch; note the records that the batch refuses."""
    try:
        into = store.open_batch(connection, name, group, store.Origin.QUARANTINE, joins=joins)
        defaults = batch_options.task_defaults(connection, into.id)
        tasks = [task for _, task in numbered_tasks]
        for task in tasks:
            give_defaults(task, defaults)
        accepted = store.accept(connection, into, tasks, first_id)
    except (ConfigError, UnsafeStateError) as error:
        reasons |= dict.fromkeys((number for number, _ in numbered_tasks), str(error))
        return ()
    reasons |= dict.fromkeys(
        (numbered_tasks[position][0] for position in accepted.clashing),
        foreign_records.clash_text(name),
    )
    return accepted.orders
