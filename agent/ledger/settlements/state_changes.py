"""Changes the rows of settled tasks, as SQL: state, owner, fence, counts, due time.

Which outcomes are accepted, and under which locks, is decided in `settling`.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import starmap
from operator import itemgetter
from typing import Any, TypeVar

from sqlalchemy import Connection, Update, bindparam, delete, update

from docllm.agent.ledger.settlements import written_rows
from docllm.agent.ports import Settlement
from docllm.agent.ports.outcome import (
    Cancelled,
    Dead,
    Moved,
    Outcome,
    Released,
    Retry,
    Snooze,
    Succeeded,
)
from docllm.producer.ledger import waiting_rows
from docllm.producer.ledger.waiting_rows import WaitingFor
from docllm.schemas.ledger.bulk import insert_columns, insert_rows
from docllm.schemas.ledger.by_ids import execute_by_ids
from docllm.schemas.ledger.sql import NEVER_TIME, utc_after, utc_now
from docllm.schemas.ledger.tables import result_note, task, task_loss, task_result
from docllm.schemas.task.states import Status
from docllm.schemas.task.waits import WaitReason

# These statements are built once. A statement that is built for each page is also compiled, or
# looked up, for each page.
_OF_IDS = task.c.id.in_(bindparam("ids", expanding=True))
_SUCCEED = (
    update(task)
    .where(_OF_IDS)
    .values(status=int(Status.SUCCEEDED), owner=0, lease_losses=0, due_at=NEVER_TIME)
)
_DIE = (
    update(task)
    .where(_OF_IDS)
    .values(
        status=int(Status.DEAD),
        owner=0,
        lease_losses=task.c.lease_losses * bindparam("losses_kept"),
        attempt=task.c.attempt + 1,
        due_at=NEVER_TIME,
        route=bindparam("by_route"),
    )
)
_CANCEL = (
    update(task)
    .where(_OF_IDS)
    .values(status=int(Status.CANCELLED), owner=0, due_at=NEVER_TIME, route=bindparam("by_route"))
)
_RELEASE = update(task).where(_OF_IDS).values(status=int(Status.PENDING), owner=0, due_at=utc_now())
_RETRY = (
    update(task)
    .where(task.c.id == bindparam("of_task"))
    .values(
        status=int(Status.RETRYING),
        owner=0,
        lease_losses=task.c.lease_losses * bindparam("losses_kept"),
        fence=task.c.fence + 1,
        attempt=task.c.attempt + 1,
        due_at=utc_after(bindparam("delay_s")),
        route=bindparam("by_route"),
        carrier=bindparam("to_carrier"),
    )
)
_MOVE = (
    update(task)
    .where(task.c.id == bindparam("of_task"))
    .values(
        status=int(Status.RETRYING),
        owner=0,
        fence=task.c.fence + 1,
        due_at=utc_after(bindparam("delay_s")),
        route=bindparam("by_route"),
    )
)
_SNOOZE = (
    update(task)
    .where(task.c.id == bindparam("of_task"))
    .values(
        status=int(Status.PENDING),
        owner=0,
        due_at=utc_after(bindparam("delay_s")),
        route=bindparam("by_route"),
    )
)

T = TypeVar("T", bound=Outcome)


def write_successes(
    connection: Connection, succeeded: Sequence[tuple[Settlement, Succeeded]], release: str
) -> None:
    """Store the results of tasks, and make the tasks final."""
    if not succeeded:
        return
    insert_columns(connection, task_result, written_rows.results(succeeded, release))
    insert_rows(connection, result_note, list(written_rows.notes(succeeded)))
    _update_all(connection, _SUCCEED, succeeded)
    waiting_rows.forget_states(connection, _may_have_state(succeeded))
    _forget_losses(connection, [settlement for settlement, _ in succeeded])


def write(connection: Connection, group: str, chosen: Sequence[tuple[Settlement, Outcome]]) -> None:
    """Give each task that did not succeed the row that its outcome means."""
    _die(connection, of_kind(chosen, Dead))
    _forget_losses(
        connection,
        [
            settlement
            for settlement, outcome in chosen
            if isinstance(outcome, Dead | Retry) and not _keeps_losses(outcome)
        ],
    )
    cancelled = of_kind(chosen, Cancelled)
    _end_on_routes(connection, _CANCEL, cancelled)
    waiting_rows.forget_states(connection, _may_have_state(cancelled))
    _update_all(connection, _RELEASE, of_kind(chosen, Released))
    _run_by_task(connection, _RETRY, starmap(_retry_values, of_kind(chosen, Retry)))
    _run_by_task(connection, _MOVE, starmap(_delay_values, of_kind(chosen, Moved)))
    _run_by_task(connection, _SNOOZE, starmap(_delay_values, of_kind(chosen, Snooze)))
    _wait_in_ledger(connection, group, chosen)


def _wait_in_ledger(
    connection: Connection, group: str, chosen: Sequence[tuple[Settlement, Outcome]]
) -> None:
    """Let the tasks wait that get no record, and keep what their handlers keep."""
    waits: list[tuple[int, WaitingFor]] = []
    times: list[tuple[int, datetime]] = []
    states: list[dict[str, Any]] = []
    for settlement, outcome in chosen:
        task_id = settlement.row.task_id
        if isinstance(outcome, Moved):
            waits.append((task_id, WaitingFor(outcome.reason, outcome.key)))
            if outcome.state is not None:
                kept = {"come_backs": outcome.state.come_backs, "state": outcome.state.json}
                states.append({"task_id": task_id, **kept})
        elif isinstance(outcome, Retry) and not outcome.tier:
            waits.append((task_id, WaitingFor(WaitReason.TIME)))
        else:
            continue
        if outcome.at is not None:
            times.append((task_id, outcome.at.replace(tzinfo=None)))
    waiting_rows.wait_until(connection, times)
    if waits:
        waiting_rows.put(connection, group, waits)
    waiting_rows.keep_states(connection, states)


def of_kind(
    chosen: Sequence[tuple[Settlement, Outcome]], kind: type[T]
) -> list[tuple[Settlement, T]]:
    """Return the outcomes of one kind with their settlements."""
    return [(settlement, outcome) for settlement, outcome in chosen if isinstance(outcome, kind)]


def carrier(outcome: Retry) -> str:
    """Return the destination of the task's next record; empty if it waits in the ledger."""
    return f"retry.{outcome.tier}" if outcome.tier else ""


def _may_have_state(ended: Sequence[tuple[Settlement, Outcome]]) -> list[int]:
    """Return the tasks whose handlers may keep something: each come-back has raised the fence."""
    return [settlement.row.task_id for settlement, _ in ended if settlement.row.fence]


def _keeps_losses(outcome: Outcome) -> bool:
    """Return whether the task may still be the one that kills its agents."""
    return isinstance(outcome, Retry | Dead) and outcome.failure.keeps_losses


def _die(connection: Connection, dead: Sequence[tuple[Settlement, Dead]]) -> None:
    for kept in (0, 1):
        alike = [
            (settlement, outcome)
            for settlement, outcome in dead
            if _keeps_losses(outcome) == bool(kept)
        ]
        _end_on_routes(connection, _DIE, alike, losses_kept=kept)


def _end_on_routes(
    connection: Connection,
    statement: Update,
    ended: Sequence[tuple[Settlement, Outcome]],
    **values: Any,
) -> None:
    """Run the statement for the tasks of each route: most pages have one."""
    ids: dict[str, list[int]] = {}
    for settlement, _ in ended:
        ids.setdefault(settlement.route, []).append(settlement.row.task_id)
    for route, of_route in sorted(ids.items()):
        connection.execute(statement, {"ids": sorted(of_route), "by_route": route, **values})


def _delay_values(settlement: Settlement, outcome: Retry | Moved | Snooze) -> dict[str, Any]:
    return {
        "of_task": settlement.row.task_id,
        "delay_s": outcome.delay_s,
        "by_route": settlement.route,
    }


def _retry_values(settlement: Settlement, outcome: Retry) -> dict[str, Any]:
    losses = {"losses_kept": int(_keeps_losses(outcome))}
    return _delay_values(settlement, outcome) | losses | {"to_carrier": carrier(outcome)}


def _run_by_task(
    connection: Connection, statement: Update, values: Iterable[dict[str, Any]]
) -> None:
    """Run the statement for each task with values of its own."""
    if rows := sorted(values, key=itemgetter("of_task")):
        connection.execute(statement, rows)


def _forget_losses(connection: Connection, counted: Sequence[Settlement]) -> None:
    """Delete the losses of tasks whose attempt ended, because such a task kills no agent."""
    ids = sorted(settlement.row.task_id for settlement in counted if settlement.row.lease_losses)
    if ids:
        connection.execute(delete(task_loss).where(task_loss.c.task_id.in_(ids)))


def _update_all(
    connection: Connection, statement: Update, chosen: Iterable[tuple[Settlement, Outcome]]
) -> None:
    ids = [settlement.row.task_id for settlement, _ in chosen]
    if ids:
        execute_by_ids(connection, statement, ids)
