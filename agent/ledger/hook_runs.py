"""Leases ordered hooks to agents, and stores the result of each run, as SQL.

A lease also ends when its agent is gone or its time is over. Then any agent may run the hook again,
and the result of the former agent is ignored.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    Connection,
    Select,
    bindparam,
    case,
    delete,
    exists,
    insert,
    or_,
    select,
    union_all,
    update,
)

from docllm.agent.ledger.settlements.written_rows import costs
from docllm.agent.ports.outcome import Spent
from docllm.producer.ledger import tally
from docllm.producer.ledger.batch_options import output_raw, routes_allowed
from docllm.schemas.ledger import agent_rows
from docllm.schemas.ledger.sql import utc_after, utc_now
from docllm.schemas.ledger.tables import (
    agent,
    batch,
    hook,
    task,
    task_attempt,
    task_input,
    task_result,
)
from docllm.schemas.task.failures import AttemptOutcome, ErrorClass, TallyOutcome
from docllm.schemas.task.hooks import HookEvent, HookKind, HookState
from docllm.schemas.task.result.answer import answer_value
from docllm.schemas.task.result.codec import POINTER
from docllm.schemas.task.result.output_pointer import OutputPointer
from docllm.schemas.task.states import Status

# The wait after each failure of a hook. One more failure gives the hook up.
WAITS_S = (10.0, 60.0, 300.0, 1800.0)
MAX_TRIES = len(WAITS_S) + 1
MAX_LOSSES = 5
PAGE = 500
_TEXT_CHARS = 2000
_OF_ROW = (
    "id", "task_id", "batch_id", "type", "status", "attempts", "route", "disposition",
    "error_class", "error_text", "tries", "losses",
)  # fmt: skip
_LOST = f"{MAX_LOSSES} agents were lost while they ran it"

_FREE = Spent()


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRun:
    """A leased hook: what it is about, and how the attempt before it ended.

    The hook of a batch has `task_id` 0, no type, and the round in `attempts`.

    `attempts` is how many attempts of the task have counted, that attempt included. `losses` is how
    many agents were lost while they ran the hook. `route` is that of the attempt, and once the hook
    has begun, that of the hook's calls. `routes_allowed` and `output_raw` are those of the batch.
    """

    id: int
    task_id: int
    batch_id: int
    batch: str
    type: str
    tenant: str
    event: HookEvent
    status: str
    attempts: int
    max_attempts: int
    route: str
    disposition: str
    error_class: str
    error_text: str
    tries: int
    losses: int
    routes_allowed: tuple[str, ...] | None = None
    output_raw: bool = False

    @property
    def title(self) -> str:
        """How a log names the hook."""
        return f"on_{self.event} of {f'task {self.task_id}' if self.task_id else self.batch}"


@dataclass(frozen=True, slots=True)
class HookReturn:
    """The result of a hook.

    `failure` is empty if the hook returned. `released`: the hook could not continue, but did not
    fail.
    """

    spent: Spent = _FREE
    failure: str = ""
    released: bool = False


@dataclass(frozen=True, slots=True)
class HookEnd:
    """The end of a run; a released one waits for `delay_s`."""

    run: HookRun
    returned: HookReturn
    delay_s: float = 0.0

    @property
    def spent(self) -> Spent:
        """What the run has cost."""
        return self.returned.spent


@dataclass(frozen=True, slots=True)
class HookInput:
    """The task of a hook: its line, and its result if it succeeded and has one.

    `pointer` is where the result lies if the ledger does not have it.
    """

    value: bytes
    result: Any = None
    pointer: OutputPointer | None = None


def due_ids(
    connection: Connection,
    group: str,
    kinds: Collection[HookKind],
    most: int,
    ahead_s: float = 0.0,
) -> list[int]:
    """Return the ids of the `most` hooks that have been due longest, whatever their kind.

    With `ahead_s`, hooks that will be due within this time are included.
    """
    if not kinds:
        return []
    values = {"of_group": group, "most": most, "ahead_s": ahead_s}
    return list(connection.execute(_due(tuple(sorted(kinds))), values).scalars())


@lru_cache(maxsize=100)
def _due(kinds: tuple[HookKind, ...]) -> Select[Any]:
    """Return the statement of `due_ids`; it is built once, since agents look every second."""
    parts = [_oldest(kind).subquery() for kind in kinds]
    oldest = union_all(*(select(part) for part in parts)).subquery()
    of_all = select(oldest.c.id).order_by(oldest.c.due_at, oldest.c.id)
    return of_all.limit(bindparam("most"))


def _oldest(kind: HookKind) -> Select[tuple[int, datetime]]:
    query = select(hook.c.id, hook.c.due_at).where(
        hook.c.group_name == bindparam("of_group"),
        hook.c.state == int(HookState.WAITS),
        hook.c.type == kind[0],
        hook.c.event == str(kind[1]),
        hook.c.due_at <= utc_after(bindparam("ahead_s")),
    )
    return query.with_hint(hook, "FORCE INDEX (ix_hook_due)", "mysql").order_by(
        hook.c.due_at
    ).limit(bindparam("most"))  # fmt: skip


def lease_due(
    connection: Connection, ids: Sequence[int], agent_id: int, lease_s: float
) -> list[HookRun]:
    """Lease to one agent the hooks of `ids` that are still due; return them."""
    query = (
        select(hook.c.event, *(hook.c[name] for name in _OF_ROW))
        .where(hook.c.id.in_(sorted(ids)))
        .where(hook.c.state == int(HookState.WAITS), hook.c.due_at <= utc_now())
        .order_by(hook.c.id)
        .with_for_update(skip_locked=True)
    )
    rows = connection.execute(query).all()
    leased = [row.id for row in rows]
    if not leased:
        return []
    connection.execute(
        update(hook)
        .where(hook.c.id.in_(leased))
        .values(state=int(HookState.RUNS), owner=agent_id, due_at=utc_after(lease_s))
    )
    return _runs(connection, rows)


def _runs(connection: Connection, rows: Sequence[Any]) -> list[HookRun]:
    """Return the runs of these rows; the hooks of tasks that are gone are deleted."""
    of_batch = select(batch.c.id, batch.c.name, batch.c.options)
    batches = connection.execute(
        of_batch.where(batch.c.id.in_(sorted({row.batch_id for row in rows})))
    )
    batch_of = {row.id: row for row in batches}
    of_task = select(task.c.id, task.c.tenant, task.c.max_attempts)
    tasks = connection.execute(of_task.where(task.c.id.in_(sorted({row.task_id for row in rows}))))
    task_of = {row.id: row for row in tasks}
    orphans = [row.id for row in rows if row.task_id and row.task_id not in task_of]
    if orphans:
        connection.execute(delete(hook).where(hook.c.id.in_(orphans)))
    return [
        _run(row, batch_of[row.batch_id], task_of.get(row.task_id))
        for row in rows
        if row.id not in orphans
    ]


def _run(row: Any, of_batch: Any, of_task: Any | None) -> HookRun:
    return HookRun(
        **{name: getattr(row, name) for name in _OF_ROW},
        event=HookEvent(row.event),
        batch=of_batch.name,
        tenant="" if of_task is None else of_task.tenant,
        max_attempts=0 if of_task is None else of_task.max_attempts,
        routes_allowed=routes_allowed(of_batch.options),
        output_raw=output_raw(of_batch.options),
    )


def read_input(connection: Connection, run: HookRun) -> HookInput | None:
    """Return the input of a hook; None if somebody has deleted it."""
    query = select(task_input.c.body).where(task_input.c.task_id == run.task_id)
    value = connection.execute(query).scalar()
    if value is None:
        return None
    columns = task_result.c
    of_task = select(columns.codec, columns.body).where(columns.task_id == run.task_id)
    has_result = run.event in {HookEvent.SUCCESS, HookEvent.OUTPUT}
    row = connection.execute(of_task).one_or_none() if has_result else None
    if row is not None and row.codec == POINTER:
        return HookInput(value, pointer=OutputPointer.of_stored(row.body))
    return HookInput(value, None if row is None else answer_value(value, *row))


_OF_HOOK = hook.c.id == bindparam("hook_id")
_AFTER_WAIT = utc_after(bindparam("wait_s"))
_DONE = delete(hook).where(_OF_HOOK)
_RELEASED = (
    update(hook).where(_OF_HOOK).values(state=int(HookState.WAITS), owner=0, due_at=_AFTER_WAIT)
)
_FAILED = (
    update(hook)
    .where(_OF_HOOK)
    .values(
        state=bindparam("next_state"),
        owner=0,
        due_at=_AFTER_WAIT,
        tries=bindparam("next_tries"),
        failure=bindparam("text"),
    )
)


def finish(connection: Connection, agent_id: int, ends: Sequence[HookEnd]) -> int:
    """Write how an agent's runs ended; return how many hooks were given up.

    A hook that no longer belongs to the agent is left alone.
    """
    query = (
        select(hook.c.id)
        .where(hook.c.id.in_(sorted(end.run.id for end in ends)))
        .where(hook.c.state == int(HookState.RUNS), hook.c.owner == agent_id)
        .order_by(hook.c.id)
        .with_for_update()
    )
    own = set(connection.execute(query).scalars())
    accepted = [end for end in ends if end.run.id in own]
    done, released, failed = list[HookEnd](), list[HookEnd](), list[HookEnd]()
    for end in accepted:
        failed_or_done = failed if end.returned.failure else done
        (released if end.returned.released else failed_or_done).append(end)
    if done:
        connection.execute(_DONE, [{"hook_id": end.run.id} for end in done])
    if released:
        waits = [{"hook_id": end.run.id, "wait_s": end.delay_s} for end in released]
        connection.execute(_RELEASED, waits)
    if failed:
        connection.execute(_FAILED, [_of_failed(end.run, end.returned.failure) for end in failed])
    _book(connection, [end for end in accepted if end.spent.has_called])
    return sum(gives_up(end.run) for end in failed)


def gives_up(run: HookRun) -> bool:
    """Return whether a hook is given up if this run of it fails."""
    return run.tries + 1 >= MAX_TRIES


def _of_failed(run: HookRun, failure: str) -> dict[str, Any]:
    return {
        "hook_id": run.id,
        "next_state": int(HookState.GAVE_UP if gives_up(run) else HookState.WAITS),
        "wait_s": 0.0 if gives_up(run) else WAITS_S[run.tries],
        "next_tries": run.tries + 1,
        "text": failure.encode("utf-8", "replace").decode()[:_TEXT_CHARS],
    }


def _book(connection: Connection, paid: Sequence[HookEnd]) -> None:
    """Add what hooks have paid to the cost of their tasks and batches."""
    if not paid:
        return
    connection.execute(insert(task_attempt), [_cost_row(end) for end in paid])
    tally.write(connection, map(_cost_change, paid))


def _cost_row(end: HookEnd) -> dict[str, Any]:
    run, spent = end.run, end.spent
    return {
        "task_id": run.task_id,
        "owner": 0,
        "attempt": max(0, run.attempts - 1),
        "fence": 0,
        "outcome": AttemptOutcome.HOOK,
        "error_class": ErrorClass.HOOK,
        "error_text": f"on_{run.event}",
        "trace_id": spent.call_id,
        "duration_ms": spent.duration_ms,
        "route": run.route,
        "model": spent.model,
        **costs(spent),
    }


def _cost_change(end: HookEnd) -> tally.TallyChange:
    run = end.run
    return tally.TallyChange(
        batch_id=run.batch_id,
        type=run.type,
        route=run.route,
        state=Status.PROCESSING,
        outcome=TallyOutcome.HOOK,
        model=end.spent.model,
        tenant=run.tenant,
        delta=0,
        **costs(end.spent),
    )


_GONE = exists().where(agent.c.id == hook.c.owner, agent_rows.gone())
_RUNNING = hook.c.state == int(HookState.RUNS)
_LOST_LEASES = (
    select(hook.c.id)
    .where(hook.c.group_name == bindparam("of_group"), _RUNNING)
    .where(or_(_GONE, hook.c.due_at < utc_now()))
    .limit(PAGE)
)


def end_lost_leases(connection: Connection, group: str) -> int:
    """End the leases whose agent is gone or whose time is over; return how many.

    The loss is counted: a hook over which MAX_LOSSES agents were lost is given up.
    """
    ids = sorted(connection.execute(_LOST_LEASES, {"of_group": group}).scalars())
    if not ids:
        return 0
    gave_up = hook.c.losses + 1 >= MAX_LOSSES
    return connection.execute(
        update(hook)
        .where(hook.c.id.in_(ids), _RUNNING, or_(_GONE, hook.c.due_at < utc_now()))
        .ordered_values(
            (hook.c.state, case((gave_up, int(HookState.GAVE_UP)), else_=int(HookState.WAITS))),
            (hook.c.failure, case((gave_up, _LOST), else_=hook.c.failure)),
            (hook.c.losses, hook.c.losses + 1),
            (hook.c.owner, 0),
            (hook.c.due_at, utc_now()),
        )
    ).rowcount


def any_running(connection: Connection, group: str) -> bool:
    """Return whether an agent of the group runs a hook."""
    query = select(hook.c.id).where(hook.c.group_name == group, _RUNNING).limit(1)
    return connection.execute(query).scalar() is not None
