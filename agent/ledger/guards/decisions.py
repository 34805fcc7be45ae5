"""Guards as SQL: decides about failures inside the transaction of a settle or of the reaper.

The guard row of a key is locked before any decision, so that all agents count one after another.
Rows are locked in this order: `task`, `guard`, `guard_look` (the tasks that a look tries).

How a guard moves from state to state: `docs/explanation/architecture.md`, "Guards".
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, delete, or_, select, update

from docllm.agent.judge import Effect, Tier, effect_of, fingerprint
from docllm.agent.judge.guard_rule import WINDOW_S, KeyHistory
from docllm.agent.judge.tiers import move_for_guard
from docllm.agent.ledger.guards import key_history
from docllm.agent.ports import Row, Settlement
from docllm.agent.ports.outcome import Dead, Moved, Outcome, Succeeded
from docllm.schemas.ledger.sql import insert_new, utc_after, utc_now
from docllm.schemas.ledger.tables import guard, guard_look
from docllm.schemas.task.failures import Disposition, ErrorClass
from docllm.schemas.task.guard import ANY_ROUTE, GuardCause
from docllm.schemas.task.waits import guard_key


class GuardKey(NamedTuple):
    """The subject of a guard: a batch, a task type and a route."""

    batch_id: int
    type: str
    route: str


@dataclass(slots=True)
class _Case:
    """A key whose tasks a guard may hold back.

    - `guard_id` is the key's own guard, which need not be raised.
    - `raised` has the rows of the guards that hold it back: its own, and the one for all routes.
    - `failed` is the text of the error at which this settle raised the guard.
    """

    guard_id: int
    history: KeyHistory
    raised: Sequence[Any] = ()
    failed: str = ""


def hold_back(
    connection: Connection, group: str, settlements: Sequence[Settlement], longest: Tier
) -> list[tuple[Settlement, Outcome]]:
    """Return the outcomes to write; a death that a guard holds back becomes a move.

    The move goes to the longest tier and is not counted. A guard holds back tasks whose attempts
    are used up, and tasks that were refused while no task of their key has succeeded. A task of a
    look that began on a working route dies all the same. Other deaths are never held back.
    """
    cases = _cases(connection, group, settlements)
    tried = _tried(
        connection, cases.values(), [settlement.row.task_id for settlement in settlements]
    )
    decided = [
        (settlement, _decide(cases.get(_key(settlement)), settlement, longest, tried))
        for settlement in settlements
    ]
    held_back = [settlement.row for settlement, outcome in decided if isinstance(outcome, Moved)]
    leave_looks(connection, [(row.task_id, row.fence) for row in held_back])
    for case in cases.values():
        if case.history.cause is not None:
            _raise(
                connection, case.guard_id, case.history.cause, f"{case.history.why}; {case.failed}"
            )
    return decided


def _key(settlement: Settlement) -> GuardKey:
    return GuardKey(settlement.row.batch_id, settlement.row.type, settlement.route)


def _is_exhausted(outcome: Outcome) -> bool:
    return isinstance(outcome, Dead) and outcome.disposition == Disposition.EXHAUSTED


def _is_bad_request(outcome: Outcome) -> bool:
    return (
        isinstance(outcome, Dead)
        and outcome.disposition == Disposition.PERMANENT
        and outcome.failure.error_class == ErrorClass.BAD_REQUEST
    )


def _decide(
    case: _Case | None, settlement: Settlement, longest: Tier, tried: Collection[tuple[int, int]]
) -> Outcome:
    outcome = settlement.outcome
    if case is None or not isinstance(outcome, Dead | Succeeded):
        return outcome
    if isinstance(outcome, Succeeded):
        case.history.count_success()
        return outcome
    if not (_is_exhausted(outcome) or _is_bad_request(outcome)):
        case.history.count_own_death()
        return outcome
    failure = outcome.failure
    dies = (settlement.row.task_id, settlement.row.fence) in tried or _let_die(
        case.history, outcome
    )
    if case.history.cause is not None and not case.failed:
        case.failed = f"{failure.error_class}: {failure.text}"
    return outcome if dies else put_off(settlement.row, outcome, longest)


def put_off(row: Row, death: Dead, longest: Tier) -> Moved:
    """Return the outcome of a task that may not die now: it waits for its guard."""
    key = guard_key(row.batch_id, row.type)
    return move_for_guard(death.failure, death.spent, row.task_id, key, longest)


def _let_die(history: KeyHistory, outcome: Dead) -> bool:
    failure = outcome.failure
    error = fingerprint(failure.error_class, failure.text)
    if _is_bad_request(outcome):
        return history.let_die_of_bad_request(error)
    return history.let_die(error, of_call=effect_of(failure.error_class) is not Effect.NONE)


def _cases(
    connection: Connection, group: str, settlements: Sequence[Settlement]
) -> dict[GuardKey, _Case]:
    """Return the keys whose guard may be raised or may hold a task back; lock their rows.

    These are the keys of tasks whose attempts are used up, and keys without any success of which
    the provider refused a task.
    """
    exhausted = {
        _key(settlement) for settlement in settlements if _is_exhausted(settlement.outcome)
    }
    succeeding = {
        _key(settlement) for settlement in settlements if isinstance(settlement.outcome, Succeeded)
    }
    refused = {
        _key(settlement) for settlement in settlements if _is_bad_request(settlement.outcome)
    } - succeeding
    without_success = {key for key in refused if not key_history.any_success(connection, *key)}
    if not exhausted | without_success:
        return {}
    rows = _lock_or_insert(connection, group, exhausted | without_success)
    routes = {key.route for key in succeeding}
    cases = {}
    for key in sorted(exhausted | without_success):
        row, wide = rows[key], rows.get(key._replace(route=ANY_ROUTE))
        raised = [
            guard_row
            for guard_row in (row, wide)
            if guard_row is not None and guard_row.opened_at is None
        ]
        history = _history(
            connection,
            group,
            key,
            row,
            raised=bool(raised),
            exhausted=key in exhausted,
            has_no_success=key in without_success,
            succeeding=key.route in routes,
        )
        cases[key] = _Case(row.id, history, raised)
    return cases


def _history(
    connection: Connection,
    group: str,
    key: GuardKey,
    row: Any,
    *,
    raised: bool,
    exhausted: bool,
    has_no_success: bool,
    succeeding: bool,
) -> KeyHistory:
    """Return what this settle must know of the key, to decide whether its tasks may die.

    Only what these deaths need is read. The state of the route and the recent ends are read if
    attempts are used up and no guard is raised, and the refusals if the key has no success.
    """
    # Failures before the guard's last opening are forgiven.
    since = row.opened_at if row.cause else None
    counts = exhausted and not raised
    works = (
        not counts
        or row.trusted
        or succeeding
        or key_history.route_works(connection, group, key.route)
    )
    ended, bad_requests = (
        key_history.refusals(connection, *key, since=since)
        if has_no_success
        else (0, Counter[bytes]())
    )
    is_bad_request = row.opened_at is None and row.cause == GuardCause.BAD_REQUEST
    return KeyHistory(
        raised=raised,
        route_works=works,
        silence="" if works else key_history.silence(connection, group, key.route),
        recent_ends=key_history.recent_ends(connection, *key, since=since)
        if counts and works
        else (),
        raised_by_bad_requests=has_no_success and is_bad_request,
        has_no_success=has_no_success,
        ended=ended,
        bad_requests=bad_requests,
        ends_well=partial(key_history.ends_well, connection, *key),
    )


def _lock_or_insert(
    connection: Connection, group: str, keys: Collection[GuardKey]
) -> dict[GuardKey, Any]:
    """Lock and return the guards of these keys' batches; a key without a guard gets an open one."""
    guards = _lock(connection, keys)
    missing = sorted(key for key in keys if key not in guards)
    for key in missing:
        row = insert_new(connection, guard).values(
            group_name=group, opened_at=utc_now(), called_at=utc_now(), **key._asdict()
        )
        connection.execute(row)
    return _lock(connection, keys) if missing else guards


def _lock(connection: Connection, keys: Collection[GuardKey]) -> dict[GuardKey, Any]:
    """Lock and return the guards of these keys' batches.

    The route of a recently opened guard is `trusted`: the guard was opened because its route works.
    """
    trusted = ((guard.c.cause != "") & (guard.c.opened_at > utc_after(-WINDOW_S))).label("trusted")
    columns = (
        guard.c.id,
        guard.c.batch_id,
        guard.c.type,
        guard.c.route,
        guard.c.cause,
        guard.c.opened_at,
        guard.c.vouched,
    )
    query = select(*columns, trusted).where(
        guard.c.batch_id.in_(sorted({key.batch_id for key in keys}))
    )
    rows = connection.execute(query.order_by(guard.c.id).with_for_update())
    return {GuardKey(row.batch_id, row.type, row.route): row for row in rows}


def _raise(connection: Connection, guard_id: int, cause: GuardCause, reason: str) -> None:
    """Raise an open guard; its first look is due at once."""
    times = {"raised_at": utc_now(), "probe_at": utc_now(), "opened_at": None, "called_at": None}
    no_look = {"look_size": 1, "look_left": -1, "look_at": utc_now(), "vouched": 0}
    still_open = update(guard).where(guard.c.id == guard_id, guard.c.opened_at.is_not(None))
    connection.execute(
        still_open.values(cause=cause.value, reason=reason[:500], **times, **no_look)
    )


def _tried(
    connection: Connection, cases: Collection[_Case], task_ids: Sequence[int]
) -> set[tuple[int, int]]:
    """Return (task, fence) of the tasks in a look whose route worked when it began (`vouched`).

    If such a task fails, it is at fault itself and not its route: it dies although its guard is
    raised.
    """
    vouched_ids = sorted({row.id for case in cases for row in case.raised if row.vouched})
    return _in_looks(connection, vouched_ids, task_ids) if vouched_ids else set()


def _in_looks(
    connection: Connection, guard_ids: Sequence[int], task_ids: Sequence[int]
) -> set[tuple[int, int]]:
    query = select(guard_look.c.task_id, guard_look.c.fence).where(
        guard_look.c.guard_id.in_(guard_ids), guard_look.c.task_id.in_(sorted(task_ids))
    )
    return {(row.task_id, row.fence) for row in connection.execute(query)}


def leave_looks(connection: Connection, tasks: Sequence[tuple[int, int]]) -> None:
    """Remove these (task, fence) from their looks: a moved task shows nothing about its route."""
    if not tasks:
        return
    query = select(guard_look).where(
        guard_look.c.task_id.in_(sorted({task_id for task_id, _ in tasks}))
    )
    leaving = [row for row in connection.execute(query) if (row.task_id, row.fence) in set(tasks)]
    if leaving:
        places = [
            and_(guard_look.c.guard_id == row.guard_id, guard_look.c.task_id == row.task_id)
            for row in leaving
        ]
        connection.execute(delete(guard_look).where(or_(*places)))


def raised_for_losses(
    connection: Connection, keys: Collection[tuple[int, str]]
) -> set[tuple[int, str]]:
    """Return which of these (batch, type) have a raised guard for lost agents."""
    ids = sorted({batch_id for batch_id, _ in keys})
    query = select(guard.c.batch_id, guard.c.type).where(
        guard.c.batch_id.in_(ids), guard.c.route == ANY_ROUTE, guard.c.opened_at.is_(None)
    )
    return {(row.batch_id, row.type) for row in connection.execute(query)} & set(keys)


def in_lost_looks(connection: Connection, group: str, tasks: Sequence[tuple[int, int]]) -> set[int]:
    """Return the ids of these (task, fence) that may die in a look for lost agents.

    They are in a look of a raised guard that began while other tasks of the group succeeded.
    """
    raised = select(guard.c.id).where(
        guard.c.group_name == group, guard.c.route == ANY_ROUTE, guard.c.opened_at.is_(None)
    )
    ids = sorted(connection.execute(raised.where(guard.c.vouched == 1)).scalars())
    tried = _in_looks(connection, ids, [task_id for task_id, _ in tasks]) if ids else set()
    return {task_id for task_id, fence in tasks if (task_id, fence) in tried}


def raise_for_losses(
    connection: Connection, group: str, keys: Collection[tuple[int, str]], reason: str
) -> None:
    """Raise the guards of these (batch, type) for all routes."""
    wide = {GuardKey(batch_id, task_type, ANY_ROUTE) for batch_id, task_type in keys}
    rows = _lock_or_insert(connection, group, wide)
    for key in sorted(wide):
        _raise(connection, rows[key].id, GuardCause.WORKER_LOST, reason)
