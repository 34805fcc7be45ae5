"""Orders hooks, as SQL, in the transaction that ends an attempt or cancels a task.

A settle orders the hooks that its agent's own settings name. A program that resets or cancels tasks
of other agents orders the hooks that agents of the group have reported within a day, because its
own settings may lack their types.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select, update

from docllm.producer.ledger import audit
from docllm.schemas.ledger.bulk import insert_rows
from docllm.schemas.ledger.sql import insert_new, utc_after, utc_now
from docllm.schemas.ledger.tables import batch, hook, hook_type
from docllm.schemas.task.hooks import Hooked, HookEvent, HookState, hook_name
from docllm.schemas.text.wording import number_of, one_line

KNOWN_S = 86_400.0
MAX_COUNTED = 1000  # of a group with more hooks in a state, only so many are read and counted
RETRY_PAGE = 500  # hooks that are ordered again in one transaction
HookOrder = Mapping[str, Any]  # the columns of `hook` that an order gives
_TEXT_CHARS = 2000


def order(
    group: str,
    event: HookEvent,
    row: Mapping[str, Any],
    *,
    status: str,
    disposition: str = "",
    error_class: str = "",
    error_text: str = "",
) -> HookOrder:
    """Return an order of the event's hook.

    `row` has `task_id`, `batch_id`, `type`, `route` and `attempts` of the attempt that ended.
    """
    return {
        **row,
        "group_name": group,
        "event": str(event),
        "status": status,
        "disposition": str(disposition),
        "error_class": error_class[:64],
        "error_text": error_text.encode("utf-8", "replace").decode()[:_TEXT_CHARS],
    }


def place(connection: Connection, orders: Sequence[HookOrder]) -> None:
    """Write orders; each is due at once."""
    insert_rows(connection, hook, orders)


def store_names(connection: Connection, group: str, named: Iterable[tuple[str, str]]) -> None:
    """Store that the settings of this agent name these, each a type and an event."""
    rows = [
        {"group_name": group, "type": name, "event": str(event)} for name, event in sorted(named)
    ]
    for row in rows:  # in the order of the key, in which all agents lock them
        connection.execute(insert_new(connection, hook_type).values(**row))
        of_row = [hook_type.c[name] == value for name, value in row.items()]
        connection.execute(update(hook_type).where(*of_row).values(seen_at=utc_now()))


def read_hooked(connection: Connection, group: str, types: Iterable[str]) -> Hooked:
    """Return which hooks agents of the group have named for these types within a day."""
    query = select(hook_type.c.type, hook_type.c.event).where(
        hook_type.c.group_name == group,
        hook_type.c.type.in_(sorted(set(types))),
        hook_type.c.event.in_(sorted(HookEvent)),
        hook_type.c.seen_at > utc_after(-KNOWN_S),
    )
    events: defaultdict[str, set[HookEvent]] = defaultdict(set)
    for name, event in connection.execute(query):
        events[name].add(HookEvent(event))
    return {name: frozenset(of_type) for name, of_type in events.items()}


def order_cancelled(connection: Connection, rows: Sequence[Any]) -> None:
    """Order the hooks of cancelled tasks that waited or whose agent was lost.

    The rows have `id`, `batch_id`, `type`, `route` and `attempt`.
    """
    if not rows:
        return
    batches = sorted({row.batch_id for row in rows})
    query = select(batch.c.id, batch.c.group_name).where(batch.c.id.in_(batches))
    groups = {row.id: row.group_name for row in connection.execute(query)}
    hooked = {
        group: read_hooked(connection, group, (row.type for row in rows))
        for group in sorted(set(groups.values()))
    }
    place(
        connection,
        [
            order(group, HookEvent.DEAD, of_row(row, attempts=row.attempt), status="cancelled")
            for row in rows
            for group in [groups[row.batch_id]]
            if HookEvent.DEAD in hooked[group].get(row.type, ())
        ],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """The hooks of one type and event that were given up; `failure` is why one of them failed."""

    type: str
    event: HookEvent
    count: int
    failure: str

    @property
    def name(self) -> str:
        """How a sentence names these hooks."""
        return hook_name(self.type, self.event)

    def as_json(self) -> dict[str, Any]:
        """Return the form of `--json`."""
        return asdict(self)


def given_up(connection: Connection, group: str) -> list[str]:
    """Return in words which hooks of the group were given up, with a failure of each kind."""
    return [
        f"{number_of(number, 'hook')} {hook_name(name, event)} given up: {failure}; "
        f"to run them again: docllm dead hooks --retry --group {group}"
        for (name, event), (number, failure) in _counts_by_kind(
            connection, group, HookState.GAVE_UP
        ).items()
    ]


def given_up_kinds(
    connection: Connection, group: str, task_type: str | None, event: HookEvent | None
) -> list[GivenUp]:
    """Return how many hooks were given up by type and event; None means all of them."""
    kind = hook.c.type, hook.c.event
    query = (
        select(*kind, func.count().label("n"), func.max(hook.c.id).label("newest"))
        .where(hook.c.group_name == group, hook.c.state == int(HookState.GAVE_UP))
        .group_by(*kind)
        .order_by(*kind)
    )
    for column, value in ((hook.c.type, task_type), (hook.c.event, event and str(event))):
        if value is not None:
            query = query.where(column == value)
    rows = connection.execute(query).all()
    texts = select(hook.c.id, hook.c.failure).where(hook.c.id.in_([row.newest for row in rows]))
    failures = {row.id: one_line(row.failure) for row in connection.execute(texts)}
    return [
        GivenUp(
            type=row.type,
            event=HookEvent(row.event),
            count=row.n,
            failure=failures.get(row.newest, ""),
        )
        for row in rows
    ]


def given_up_ids(connection: Connection, group: str, kind: GivenUp) -> list[int]:
    """Return the ids of some hooks of a kind that were given up."""
    query = select(hook.c.id).where(*_gave_up(group, kind)).limit(RETRY_PAGE)
    return sorted(connection.execute(query).scalars())


def retry(connection: Connection, group: str, kind: GivenUp, ids: Sequence[int], actor: str) -> int:
    """Let given-up hooks run again, with all their tries; return how many."""
    retried = connection.execute(
        update(hook)
        .where(hook.c.id.in_(ids), hook.c.state == int(HookState.GAVE_UP))
        .values(state=int(HookState.WAITS), owner=0, tries=0, losses=0, due_at=utc_now())
    ).rowcount
    audit.write(
        connection,
        group=group,
        actor=actor,
        action="dead hooks --retry",
        kind=audit.AuditKind.HOOK,
        target=kind.name,
        detail=f"{kind.name}: {kind.failure}",
        items=retried,
    )
    return retried


def _gave_up(group: str, kind: GivenUp) -> tuple[ColumnElement[bool], ...]:
    return (
        hook.c.group_name == group,
        hook.c.state == int(HookState.GAVE_UP),
        hook.c.type == kind.type,
        hook.c.event == str(kind.event),
    )


def of_task(connection: Connection, task_id: int) -> list[str]:
    """Return in words the hooks of a task that are not done, the oldest first."""
    query = select(hook).where(hook.c.task_id == task_id).order_by(hook.c.id).limit(MAX_COUNTED)
    return [_in_words(row) for row in connection.execute(query)]


def _in_words(row: Any) -> str:
    state = {HookState.RUNS: "runs", HookState.GAVE_UP: "given up"}.get(row.state, "waits")
    failed = f", failed {number_of(row.tries, 'time')}" if row.tries else ""
    return f"on_{row.event} {state}{failed}" + (f": {row.failure}" if row.failure else "")


def to_be_tried(connection: Connection, group: str) -> list[str]:
    """Return in words which hooks of the group wait to be run, some after a failure."""
    return [
        f"{number_of(number, 'hook')} {hook_name(name, event)} not done"
        + (f" ({failure})" if failure else "")
        + f"; an agent runs them: docllm agent --group {group}"
        for (name, event), (number, failure) in _counts_by_kind(
            connection, group, HookState.WAITS
        ).items()
    ]


def _counts_by_kind(
    connection: Connection, group: str, state: HookState
) -> dict[tuple[str, str], tuple[int, str]]:
    """Return by kind how many hooks are in a state, and a failure, of MAX_COUNTED hooks at most."""
    query = (
        select(hook.c.type, hook.c.event, hook.c.failure)
        .where(hook.c.group_name == group, hook.c.state == int(state))
        .limit(MAX_COUNTED)
    )
    counts: dict[tuple[str, str], tuple[int, str]] = {}
    for row in connection.execute(query):
        number, failure = counts.get((row.type, row.event), (0, ""))
        counts[row.type, row.event] = number + 1, failure or one_line(row.failure)
    return counts


def of_row(row: Any, *, attempts: int) -> dict[str, Any]:
    """Return the part of an order that a row of `task` gives."""
    return {
        "task_id": row.id,
        "batch_id": row.batch_id,
        "type": row.type,
        "route": row.route,
        "attempts": attempts,
    }
