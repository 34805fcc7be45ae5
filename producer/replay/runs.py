"""Replay runs in the ledger: a run's items are all stored before the first is applied.

So a stored run can be applied by any process, and a run that was killed while it was stored is
dropped, because nothing of it was applied. This module has what tasks and records share;
`replay/tasks.py` and `replay/records.py` apply them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    Connection,
    Select,
    and_,
    bindparam,
    delete,
    false,
    func,
    insert,
    select,
    update,
)

from docllm.producer.ledger import audit, replay_progress
from docllm.producer.ledger.audit import AuditKind
from docllm.producer.ledger.dead_letters import selection_query
from docllm.producer.ledger.outbox import QUARANTINE, TASK
from docllm.producer.ledger.replay_progress import ItemState, ReplayRequest
from docllm.producer.ports import Order
from docllm.schemas.ledger.bulk import insert_rows
from docllm.schemas.ledger.sql import seconds_until, utc_after, utc_now
from docllm.schemas.ledger.tables import quarantine, replay_item, replay_run

STORED_PAGE = 2000
KINDS = (TASK, QUARANTINE)
READ_BYTES = 16 << 20  # the largest sum of records' values in memory at once
_REASON_CHARS = 500
_COUNTS = {  # the columns of a run in which its finished items are counted
    ItemState.REPLAYED: "replayed",
    ItemState.SKIPPED: "skipped",
    ItemState.UNREAD: "unread",
}


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a process is in storing a run, or in applying it.

    It goes on with the items of `kind` with ids above `after`; it has stored `stored` items.
    """

    kind: int = KINDS[0]
    after: int = 0
    stored: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """The result of one page.

    `last`: the last item visited. `done`: how many items are finished. `orders`: the orders to
    publish. `early`: items that keep waiting because the dead letter of their task is not on its
    topic yet; once the task is replayed, its dead letter cannot be built any more. `wait_s`: for
    how many seconds the run's rate lets no item pass; no item was visited then.
    """

    last: int
    done: int
    orders: tuple[Order, ...] = ()
    early: int = 0
    wait_s: float = 0.0


@dataclass(slots=True)
class Documents:
    """What is new of the documents of tasks, as JSON, and which tasks have none that can be read.

    Both are by the number of the task. `unchanged` counts those that are as they were, and `inline`
    the tasks whose text is in their lines, or that have no document.
    """

    news: dict[int, str] = field(default_factory=dict)
    unusable: dict[int, str] = field(default_factory=dict)
    unchanged: int = 0
    inline: int = 0


class DroppedError(Exception):
    """Another replay dropped this run, because it took the run for one that was killed."""


def drop_unstored(connection: Connection, group: str) -> int:
    """End runs whose items were not all stored; return how many.

    Nothing of these runs was applied, and nothing will be.
    """
    incomplete = (
        replay_run.c.group_name == group,
        replay_run.c.stored_at.is_(None),
        replay_run.c.ended_at.is_(None),
    )
    return connection.execute(
        update(replay_run).where(*incomplete).values(ended_at=utc_now())
    ).rowcount


# ---- storing


def begin(connection: Connection, group: str, actor: str, request: ReplayRequest) -> int:
    """Write the row of a new run; return its id.

    It may be called again after a lost answer: the nonce identifies the row.
    """
    same_request = select(replay_run.c.id).where(
        replay_run.c.group_name == group, replay_run.c.selection == request.as_text()
    )
    run_id = connection.execute(same_request).scalar()
    if run_id is not None:
        return int(run_id)
    row = {"group_name": group, "actor": actor[:191], "selection": request.as_text()}
    key = connection.execute(insert(replay_run), row).inserted_primary_key
    return int(key[0]) if key else 0


def store(
    connection: Connection,
    group: str,
    run_id: int,
    request: ReplayRequest,
    start: Cursor,
    documents: Documents | None = None,
) -> Cursor | None:
    """Store a page of the request's items from `start` on; return where the next page starts.

    Returns None when all items are stored. With the last page the run is sealed, or deleted if it
    has no items. So a run that fits in one page is stored whole or not at all. Tasks whose
    documents cannot be read again are left out. Raises DroppedError when the run was dropped.
    """
    unended = select(replay_run.c.id).where(
        replay_run.c.id == run_id, replay_run.c.ended_at.is_(None)
    )
    if connection.execute(unended.with_for_update()).scalar() is None:
        raise DroppedError
    stored, room = start.stored, STORED_PAGE
    for kind in KINDS[KINDS.index(start.kind) :]:
        limit = (
            room if request.selection.limit is None else min(room, request.selection.limit - stored)
        )
        after = start.after if kind == start.kind else 0
        page = _ids_after(connection, group, request, kind, after).limit(room)
        ids = list(connection.execute(page).scalars()) if limit else []
        index = selection_query.page_index(request.selection)
        query = candidates(connection, group, request, kind, index)
        news = documents if kind == TASK and documents is not None else Documents()
        stored += _store_items(connection, run_id, query, kind, ids, limit, news)
        room -= len(ids)
        if not room:
            return Cursor(kind, ids[-1], stored)
    _seal(connection, group, run_id)
    return None


def _ids_after(
    connection: Connection, group: str, request: ReplayRequest, kind: int, after: int
) -> Select[Any]:
    if kind == TASK:
        return selection_query.ids_after(connection, request.selection, group, after)
    return select(quarantine.c.id).where(quarantine.c.id > after).order_by(quarantine.c.id)


def _store_items(
    connection: Connection,
    run_id: int,
    query: Select[Any],
    kind: int,
    ids: Sequence[int],
    limit: int,
    documents: Documents,
) -> int:
    """Store at most `limit` of the query's items between the first and last of `ids`.

    Returns how many items were stored.
    """
    if not ids:
        return 0
    column = query.selected_columns[0]
    page = query.where(column.between(ids[0], ids[-1])).order_by(column).limit(limit)
    rows = [
        {
            "run_id": run_id,
            "kind": kind,
            "item_id": row.id,
            "fence": row.fence,
            "document": documents.news.get(row.id, ""),
        }
        for row in connection.execute(page)
        if row.id not in documents.unusable
    ]
    insert_rows(connection, replay_item, rows, keep=True)
    return len(rows)


def candidates(
    connection: Connection,
    group: str,
    request: ReplayRequest,
    kind: int,
    index: str | None = None,
) -> Select[Any]:
    """Return a query for id and fence of the items of one kind that a request takes now."""
    if kind == TASK:
        return selection_query.tasks(connection, request.selection, group, index).where(
            selection_query.ready(request.selection, request.cap)
        )
    records = selection_query.records(request.selection, group)
    return records if request.selection.names_records else records.where(false())


def _seal(connection: Connection, group: str, run_id: int) -> None:
    """Mark a run as stored, and write the audit row that names its actor and its request.

    From here on the run can only be resumed. A run without items is deleted instead.
    """
    open_run = (replay_run.c.id == run_id, replay_run.c.stored_at.is_(None))
    counted = select(func.count()).where(replay_item.c.run_id == run_id)
    total = connection.execute(counted).scalar_one()
    if not total:
        connection.execute(delete(replay_run).where(*open_run))
        return
    sealed = update(replay_run).where(*open_run).values(stored_at=utc_now(), total=total)
    run = replay_progress.find(connection, run_id)
    if run is None or connection.execute(sealed).rowcount == 0:
        return
    detail = f"replay {run_id} of group {group}: {total} items, {run.request}"
    audit.write(
        connection,
        group=group,
        actor=run.actor,
        action="replay",
        kind=AuditKind.REPLAY,
        target=str(run_id),
        detail=detail,
        items=total,
    )


# ---- applying


def take(connection: Connection, run_id: int, kind: int, after: int, limit: int) -> Sequence[Any]:
    """Lock the next waiting items of one kind; return `item_id`, `fence` and `document` of each.

    Items that another process has locked are left out.
    """
    query = _waiting(run_id, kind).where(replay_item.c.item_id > after)
    page = query.order_by(replay_item.c.item_id).limit(limit)
    return connection.execute(page.with_for_update(skip_locked=True)).all()


def take_records(connection: Connection, run_id: int, ids: Iterable[int]) -> list[int]:
    """Lock those of these records that still wait; return their ids, as `take` does."""
    query = _waiting(run_id, QUARANTINE).where(replay_item.c.item_id.in_(sorted(ids)))
    rows = connection.execute(
        query.order_by(replay_item.c.item_id).with_for_update(skip_locked=True)
    )
    return [row.item_id for row in rows]


def _waiting(run_id: int, kind: int) -> Select[Any]:
    """Return a query for the waiting items, by the index that leaves out all finished ones."""
    query = select(replay_item.c.item_id, replay_item.c.fence, replay_item.c.document).where(
        replay_item.c.run_id == run_id,
        replay_item.c.state == int(ItemState.WAITS),
        replay_item.c.kind == kind,
    )
    return query.with_hint(replay_item, "FORCE INDEX (ix_replay_state)", "mysql")


def next_records(connection: Connection, run_id: int, after: int, limit: int) -> list[int]:
    """Return the next waiting records, as many as may be in memory at once, without a lock."""
    query = (
        _waiting(run_id, QUARANTINE)
        .join(quarantine, quarantine.c.id == replay_item.c.item_id, isouter=True)
        .add_columns(func.length(quarantine.c.record_value).label("bytes"))
        .where(replay_item.c.item_id > after)
        .order_by(replay_item.c.item_id)
        .limit(limit)
    )
    ids, total_bytes = list[int](), 0
    for row in connection.execute(query):
        total_bytes += row.bytes or 0
        if ids and total_bytes > READ_BYTES:
            break
        ids.append(row.item_id)
    return ids


_WAIT_S = (
    select(seconds_until(replay_run.c.next_at))
    .where(replay_run.c.id == bindparam("run_id"))
    .with_for_update()
)


def wait_s(connection: Connection, run_id: int, rate: float) -> float:
    """Lock a run; return in how many seconds its rate lets items through.

    The result is 0 or less if it lets them through now. All processes that apply the run share one
    rate. A time further ahead than one page can set it was written before a backward clock jump,
    and is ignored.
    """
    seconds = float(connection.execute(_WAIT_S, {"run_id": run_id}).scalar_one())
    return seconds if seconds < 2 * max(1.0, 1 / rate) else 0.0


def note_let_through(connection: Connection, run_id: int, count: int, rate: float) -> None:
    """Note that `count` items of a run were let through, at `rate` items a second."""
    connection.execute(
        update(replay_run).where(replay_run.c.id == run_id).values(next_at=utc_after(count / rate))
    )


def finish(
    connection: Connection,
    run_id: int,
    kind: int,
    ids_by_state: Mapping[ItemState, Collection[int]],
) -> None:
    """Write the new state of items, and count them in the run's row.

    The run's row comes last in a transaction, so that processes wait for each other only shortly.
    """
    for state, ids in ids_by_state.items():
        items = and_(
            replay_item.c.run_id == run_id,
            replay_item.c.kind == kind,
            replay_item.c.item_id.in_(sorted(ids)),
        )
        if ids:
            connection.execute(update(replay_item).where(items).values(state=int(state)))
    counts = {_COUNTS[state]: len(ids) for state, ids in ids_by_state.items() if ids}
    if counts:
        risen = {name: replay_run.c[name] + count for name, count in counts.items()}
        connection.execute(update(replay_run).where(replay_run.c.id == run_id).values(risen))


def note_reasons(connection: Connection, run_id: int, reasons: Mapping[int, str]) -> None:
    """Write why records are still no tasks."""
    for number, reason in reasons.items():
        item = and_(
            replay_item.c.run_id == run_id,
            replay_item.c.kind == QUARANTINE,
            replay_item.c.item_id == number,
        )
        connection.execute(update(replay_item).where(item).values(reason=reason[:_REASON_CHARS]))


def end(connection: Connection, run_id: int) -> bool:
    """Note the end of a run without waiting items; return False if items still wait.

    Its row is locked first, because letters that are written back may join an open run.
    """
    run = select(replay_run.c.id).where(replay_run.c.id == run_id)
    connection.execute(run.with_for_update())
    waiting = select(replay_item.c.item_id).where(
        replay_item.c.run_id == run_id, replay_item.c.state == int(ItemState.WAITS)
    )
    if connection.execute(waiting.limit(1)).scalar() is not None:
        return False
    ended = (
        update(replay_run)
        .where(replay_run.c.id == run_id, replay_run.c.ended_at.is_(None))
        .values(ended_at=utc_now())
    )
    connection.execute(ended)
    return True
