"""Finds and resets the tasks of lost or overdue claims, as SQL.

A task is taken only from an agent that was lost or stopped, or from a claim past its hard
deadline; every reset checks this again under lock.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    exists,
    insert,
    select,
    update,
)

from docllm.agent.judge import fingerprint
from docllm.agent.ledger.guards import decisions, loss_deaths
from docllm.agent.ledger.guards.loss_deaths import LOST_PER_WINDOW, Lost
from docllm.agent.ledger.leases.leasing import REMEMBER_S
from docllm.agent.ledger.recovery import losses, on_loss
from docllm.agent.ledger.settlements import dead_letters
from docllm.agent.ports import SUSPECT_LOSSES
from docllm.producer.ledger import cancel, hook_orders, joins, outbox, tally
from docllm.producer.ledger.claiming_agent import agent_in
from docllm.producer.ports import Item
from docllm.schemas.codes import Code
from docllm.schemas.ledger import agent_rows
from docllm.schemas.ledger.query_plans import along_due, in_group
from docllm.schemas.ledger.sql import NEVER_TIME, utc_now
from docllm.schemas.ledger.tables import agent, batch, task, task_attempt
from docllm.schemas.task.failures import (
    AttemptOutcome,
    Disposition,
    ErrorClass,
    may_have_finished,
)
from docllm.schemas.task.hooks import HookEvent
from docllm.schemas.task.joins import JoinRole
from docllm.schemas.task.states import TRANSITIONS, Status

log = logging.getLogger(__name__)

PAGE = 500
# Number of losses at which a task dies if its claims are overdue in living agents. A task
# over which agents were lost dies only if it was alone in a lost agent.
LOSS_LIMIT = 3
MAX_NAMED = 10
FEW_DEATHS = 3
_LOST = "its agent was lost while it ran"
_OVERDUE_CLAIM = "its claim was overdue, so the task was taken from its agent"

_GONE = exists().where(agent.c.id == agent_in(task.c.owner), agent_rows.gone(REMEMBER_S))
_LATE = task.c.due_at < utc_now()
_ORPHANS = (
    select(task.c.id)
    .join(agent, agent.c.id == agent_in(task.c.owner))
    .where(task.c.status == int(Status.PROCESSING), agent.c.group_name == bindparam("of_group"))
    .where(agent_rows.gone(REMEMBER_S))
    .limit(PAGE)
)
_OVERDUE = along_due(
    select(task.c.id)
    .where(task.c.status == int(Status.PROCESSING), _LATE, in_group(bindparam("of_group")))
    .order_by(task.c.due_at)
    .limit(PAGE)
)


class LostClaim(NamedTuple):
    """A claim whose task was taken from it; `claimed_utc_s` is when it was made."""

    task_id: int
    key: str
    owner: int
    fence: int
    counted_before: int
    type: str
    claimed_utc_s: float


@dataclass(frozen=True, slots=True)
class ResetTasks:
    """How many tasks wait again, how many died of their losses, and the claims of all of them.

    `not_again` counts those that are dead because of their types' `on_loss`. `taken` has the claims
    of cancelled tasks too, which no count has.
    """

    waiting: int
    dead: int
    taken: Sequence[LostClaim] = field(default=(), compare=False)
    not_again: int = 0


def orphans(connection: Connection, group: str) -> list[int]:
    """Return the tasks claimed by agents that were lost or stopped in the last day."""
    return list(connection.execute(_ORPHANS, {"of_group": group}).scalars())


def overdue(connection: Connection, group: str) -> list[int]:
    """Return the tasks whose claim is overdue, whoever owns it."""
    return list(connection.execute(_OVERDUE, {"of_group": group}).scalars())


def reset_orphans(connection: Connection, group: str, ids: Sequence[int]) -> ResetTasks:
    """Reset tasks of agents that are gone."""
    rows = _locked(connection, ids, _GONE)
    ended, tasks = _end(connection, group, rows, _LOST)
    guilty = losses.guilty(connection, rows)
    reset = _reset(connection, group, tasks, [row for row in guilty if row in tasks])
    losses.charge(connection, [*ended, *tasks])
    return _told(reset, ended, rows)


def reset_overdue(connection: Connection, group: str, ids: Sequence[int]) -> ResetTasks:
    """Reset tasks whose claims are overdue."""
    rows = _locked(connection, ids, _LATE)
    ended, tasks = _end(connection, group, rows, _OVERDUE_CLAIM)
    guilty = [row for row in tasks if row.lease_losses + 1 >= LOSS_LIMIT]
    return _told(_reset(connection, group, tasks, guilty), ended, rows)


def undo_losses(connection: Connection, group: str) -> int:
    """Undo the losses of tasks beside a task that died of its losses; return how many.

    At most a page of losses is undone, and none after more than FEW_DEATHS deaths in the window.
    So many deaths mean a bad release. Then each other task must run alone to prove that it is
    harmless.
    """
    if loss_deaths.deaths_left(connection, group) < LOST_PER_WINDOW - FEW_DEATHS:
        return 0
    return losses.undo(connection, group)


def _locked(
    connection: Connection,
    ids: Sequence[int],
    reason: ColumnElement[bool],
) -> Sequence[Any]:
    columns = (
        task.c.id,
        task.c.batch_id,
        task.c.type,
        task.c.tenant,
        task.c.route,
        task.c.owner,
        task.c.fence,
        task.c.attempt,
        task.c.lease_losses,
        task.c.lane,
        task.c.claimed_at,
        task.c.task_key,
        task.c.join_role,
    )
    query = (
        select(*columns)
        .where(task.c.id.in_(sorted(ids)), task.c.status.in_(TRANSITIONS["reap"].sources), reason)
        .order_by(task.c.id)
    )
    return connection.execute(query.with_for_update(skip_locked=True)).all()


def _end(
    connection: Connection, group: str, rows: Sequence[Any], why: str
) -> tuple[list[Any], list[Any]]:
    """Record the claims as lost; end the tasks that may not run again.

    Returns those that are dead, and those that are neither dead nor cancelled.
    """
    _write_lost(connection, rows, why)
    dead = on_loss.not_again(connection, group, rows)
    _give_up(connection, group, dead, may_have_finished(why))
    return dead, _end_cancelled(connection, [row for row in rows if row not in dead])


def _told(reset: ResetTasks, ended: Sequence[Any], rows: Sequence[Any]) -> ResetTasks:
    return replace(reset, not_again=len(ended), taken=[_claim_of(row) for row in rows])


def _write_lost(connection: Connection, rows: Sequence[Any], why: str) -> None:
    """Record the attempts of these claims as lost; a late settle deletes them again."""
    if not rows:
        return
    connection.execute(
        update(task).where(task.c.id.in_([row.id for row in rows])).values(losses=task.c.losses + 1)
    )
    lost = {"owner": 0, "outcome": AttemptOutcome.LOST, "error_class": ErrorClass.AGENT_LOST}
    connection.execute(
        insert(task_attempt),
        [
            {
                "task_id": row.id,
                "attempt": row.attempt,
                "fence": row.fence,
                "error_text": why,
                "started_at": row.claimed_at,
                "lost_owner": row.owner,
                **lost,
            }
            for row in rows
        ],
    )


def _claim_of(row: Any) -> LostClaim:
    claimed_utc_s = row.claimed_at.replace(tzinfo=UTC).timestamp()
    key = row.task_key.decode(errors="backslashreplace")
    return LostClaim(row.id, key, row.owner, row.fence, row.attempt, row.type, claimed_utc_s)


def _end_cancelled(connection: Connection, rows: Sequence[Any]) -> list[Any]:
    """End the tasks whose batch is cancelled; return the others."""
    doomed = cancel.cancelled_among(connection, {row.batch_id for row in rows})
    cancel.cancel_locked(connection, [row for row in rows if row.batch_id in doomed])
    return [row for row in rows if row.batch_id not in doomed]


def _reset(
    connection: Connection, group: str, rows: Sequence[Any], guilty: Sequence[Any]
) -> ResetTasks:
    lost = [Lost(row.id, row.fence, row.batch_id, row.type) for row in guilty]
    may_die = loss_deaths.may_die(connection, group, lost)
    dead = [row for row in guilty if row.id in may_die]
    back = [row for row in rows if row not in dead]
    _give_up(connection, group, dead)
    _requeue(connection, group, back)
    decisions.leave_looks(connection, [(row.id, row.fence) for row in back])
    _log_names(connection, back, dead)
    return ResetTasks(len(back), len(dead))


def _log_names(connection: Connection, back: Sequence[Any], dead: Sequence[Any]) -> None:
    """Log which tasks are crash suspects now, and which died of their losses."""
    suspects = [row for row in back if row.lease_losses + 1 >= SUSPECT_LOSSES]
    named = [(row, "died of its losses") for row in dead] + [
        (row, "is a suspect") for row in suspects
    ]
    query = select(batch.c.id, batch.c.name).where(
        batch.c.id.in_(sorted({row.batch_id for row, _ in named[:MAX_NAMED]}))
    )
    names = {row.id: row.name for row in connection.execute(query)} if named else {}
    for row, fate in named[:MAX_NAMED]:
        log.warning(
            "task %d of batch %s %s: %d agents were lost over it",
            row.id,
            names[row.batch_id],
            fate,
            row.lease_losses + 1,
            extra={"code": Code.SUSPECT_RUNS},
        )
    if len(named) > MAX_NAMED:
        log.warning(
            "and %d more tasks are suspects or died of their losses",
            len(named) - MAX_NAMED,
            extra={"code": Code.SUSPECT_RUNS},
        )


def _requeue(connection: Connection, group: str, rows: Sequence[Any]) -> None:
    """Let the tasks wait again and order their records.

    The owner stays, so that a late settle can be accepted. Kafka redelivers the record, so the
    order waits for its grace period.
    """
    ids = [row.id for row in rows]
    if ids:
        one_more = task.c.lease_losses + 1
        connection.execute(
            update(task)
            .where(task.c.id.in_(ids))
            .values(
                status=int(Status.PENDING),
                due_at=utc_now(),
                lease_losses=one_more,
                carrier=outbox.LANE_CARRIER,
            )
        )
        outbox.place_in_lanes(connection, group, rows)


def _give_up(connection: Connection, group: str, rows: Sequence[Any], text: str = "") -> None:
    """Let tasks be dead: those that are guilty, or, with a text, those that may not run again.

    The latter keep no losses, so that those of other tasks beside them are not undone.
    """
    ids = [row.id for row in rows]
    if not ids:
        return
    connection.execute(
        update(task)
        .where(task.c.id.in_(ids))
        .values(
            status=int(Status.DEAD),
            owner=0,
            due_at=NEVER_TIME,
            lease_losses=0 if text else task.c.lease_losses + 1,
            attempt=task.c.attempt + 1,
        )
    )
    connection.execute(insert(task_attempt), [_attempt(row, text) for row in rows])
    letters = dead_letters.write(connection, [_letter(row, text) for row in rows])
    items = [Item(outbox.TASK, row.id, row.fence) for row in rows]
    outbox.place(connection, group, "dlq", items, grace_s=0.0)  # only the relay sends it
    _order_hooks(connection, group, rows, text)
    if siblings := [row.id for row in rows if row.join_role == JoinRole.SIBLING]:
        joins.after_end(connection, group, siblings)
    tally.write(connection, map(tally.died, letters.values()))


def _order_hooks(connection: Connection, group: str, dead: Sequence[Any], text: str) -> None:
    hooked = hook_orders.read_hooked(connection, group, (row.type for row in dead))
    hook_orders.place(
        connection,
        [
            hook_orders.order(
                group,
                HookEvent.DEAD,
                hook_orders.of_row(row, attempts=row.attempt + 1),
                status="dead",
                disposition=Disposition.WORKER_LOST,
                error_class=ErrorClass.WORKER_LOST,
                error_text=text or _loss_text(row),
            )
            for row in dead
            if HookEvent.DEAD in hooked.get(row.type, ())
        ],
    )


def _letter(row: Any, text: str) -> dict[str, Any]:
    """Return the columns that say why a task died; nobody knows the lost attempt's model."""
    return {
        "task_id": row.id,
        "fence": row.fence,
        "disposition": Disposition.WORKER_LOST,
        "error_class": ErrorClass.WORKER_LOST,
        "fingerprint": fingerprint(ErrorClass.WORKER_LOST, text),
        "error_text": text or _loss_text(row),
        "route": row.route,
        "model": "",
    }


def _attempt(row: Any, text: str) -> dict[str, Any]:
    return {
        "task_id": row.id,
        # 0, not the lost claim's owner: its late settle must not take this row for an echo.
        "owner": 0,
        "attempt": row.attempt,
        "fence": row.fence,
        "outcome": AttemptOutcome.DEAD,
        "error_class": ErrorClass.WORKER_LOST,
        "error_text": text or _loss_text(row),
    }


def _loss_text(row: Any) -> str:
    return f"{row.lease_losses + 1} agents were lost while they worked on it"
