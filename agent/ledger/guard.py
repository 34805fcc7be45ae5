"""The guard of the dead-letter topic, as SQL: what settles and the reaper decide about it, inside their own transactions.

The row of a key is locked before anything is decided, so that all agents together count one after another. Locks are taken in the
order tasks, then guards.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, literal, or_, select, update

from agent.outcome import Dead, Outcome, Succeeded
from agent.policy import Tier, fingerprint
from agent.policy.guard import WINDOW_S, Cause, Ended, Watch, moved
from agent.ports import Settlement
from producer.guards import ANY_ROUTE
from schemas.sql import UtcTime, insert_new, utc_after, utc_now
from schemas.tables import batch, guard, tally
from schemas.task import Status

EXHAUSTED = "exhausted"
PROBE_BATCH = 0  # a success of the tally that no batch has: a prompt of our own was answered
LOOK_BACK = 300  # newest counts of a key that are looked at: minutes, or some seconds of a fast batch


class Key(NamedTuple):
    """What a guard is about."""

    batch_id: int
    type: str
    route: str


@dataclass(slots=True)
class _Case:
    """A key under judgement. `failed` is the error that raised its guard."""

    guard_id: int
    watch: Watch
    failed: str = ""


def hold_back(connection: Connection, group: str, settlements: Sequence[Settlement], longest: Tier) -> list[tuple[Settlement, Outcome]]:
    """Return the outcomes that are to be written: a task whose attempts are used up dies only while its key has no raised guard.

    Otherwise it is moved to the longest tier, uncounted, and the guard is raised. Other deaths are never held back.
    """
    keys = {_key(one) for one in settlements if _exhausted(one.outcome)}
    cases = _cases(connection, group, keys, settlements) if keys else {}
    decided = [(one, _decide(cases.get(_key(one)), one, longest)) for one in settlements]
    probes_failed(connection, [one.row.task_id for one, outcome in decided if outcome is not one.outcome])
    for case in cases.values():
        if case.watch.cause is not None:
            _raise(connection, case.guard_id, case.watch.cause, f"{case.watch.why}; {case.failed}")
    return decided


def _key(one: Settlement) -> Key:
    return Key(one.row.batch_id, one.row.type, one.route)


def _exhausted(outcome: Outcome) -> bool:
    return isinstance(outcome, Dead) and outcome.disposition == EXHAUSTED


def _decide(case: _Case | None, one: Settlement, longest: Tier) -> Outcome:
    outcome = one.outcome
    if case is None or not isinstance(outcome, Dead | Succeeded):
        return outcome
    if isinstance(outcome, Succeeded) or not _exhausted(outcome):
        case.watch.other()
        return outcome
    failure, was_raised = outcome.failure, case.watch.raised
    dies = case.watch.may_die(fingerprint(failure.error_class, failure.text))
    if case.watch.raised and not was_raised:
        case.failed = f"{failure.error_class}: {failure.text}"
    return outcome if dies else moved(failure, outcome.spent, longest, one.row.task_id)


def _cases(connection: Connection, group: str, keys: Collection[Key], settlements: Sequence[Settlement]) -> dict[Key, _Case]:
    rows = _locked(connection, group, keys)
    succeeding = {one.route for one in settlements if isinstance(one.outcome, Succeeded)}
    cases = {}
    for key in sorted(keys):
        row, wide = rows[key], rows.get(key._replace(route=ANY_ROUTE))
        raised = row.opened_at is None or (wide is not None and wide.opened_at is None)
        works = raised or bool(row.trusted) or key.route in succeeding or route_works(connection, group, key.route)
        cases[key] = _Case(row.id, Watch(raised, works, _lately(connection, key, row) if works and not raised else ()))
    return cases


def _locked(connection: Connection, group: str, keys: Collection[Key]) -> dict[Key, Any]:
    """Return the guards of these keys' batches, locked; a key without one gets one that is open."""
    found = _lock(connection, keys)
    missing = sorted(key for key in keys if key not in found)
    for key in missing:
        row = insert_new(connection, guard).values(group_name=group, opened_at=utc_now(), called_at=utc_now(), **key._asdict())
        connection.execute(row)
    return _lock(connection, keys) if missing else found


def _lock(connection: Connection, keys: Collection[Key]) -> dict[Key, Any]:
    """A guard that was opened lately vouches for its route: whoever opened it knows that it works."""
    trusted = ((guard.c.cause != "") & (guard.c.opened_at > utc_after(-WINDOW_S))).label("trusted")
    query = select(guard.c.id, guard.c.batch_id, guard.c.type, guard.c.route, guard.c.cause, guard.c.opened_at, trusted)
    query = query.where(guard.c.batch_id.in_(sorted({key.batch_id for key in keys}))).order_by(guard.c.id).with_for_update()
    return {Key(row.batch_id, row.type, row.route): row for row in connection.execute(query)}


def route_works(connection: Connection, group: str, route: str, since: Any = None) -> bool:
    """Return whether something of the group succeeded on the route lately; after `since`, a time of the database, where it is given."""
    query = select(tally.c.id).outerjoin(batch, batch.c.id == tally.c.batch_id)
    query = query.where(tally.c.created_at > utc_after(-WINDOW_S), tally.c.route == route, tally.c.state == int(Status.SUCCEEDED))
    query = query.where(or_(batch.c.group_name == group, tally.c.batch_id == PROBE_BATCH))
    if since is not None:
        query = query.where(tally.c.created_at > literal(since, UtcTime))
    return connection.execute(query.limit(1)).scalar() is not None


def _lately(connection: Connection, key: Key, row: Any) -> list[Ended]:
    """Return how tasks of the key ended in the window, the newest first; what was before the guard's last opening is forgiven."""
    query = select(tally.c.disposition, tally.c.fingerprint, tally.c.delta).where(
        tally.c.batch_id == key.batch_id,
        tally.c.type == key.type,
        tally.c.route == key.route,
        tally.c.state.in_((int(Status.SUCCEEDED), int(Status.DEAD))),
        tally.c.created_at > utc_after(-WINDOW_S),
    )
    if row.cause:
        query = query.where(tally.c.created_at > literal(row.opened_at, UtcTime))
    rows = connection.execute(query.order_by(tally.c.created_at.desc(), tally.c.id.desc()).limit(LOOK_BACK))
    return [Ended(one.fingerprint if one.disposition == EXHAUSTED else None, one.delta) for one in rows]


def _raise(connection: Connection, guard_id: int, cause: Cause, reason: str) -> None:
    fresh = {"raised_at": utc_now(), "probe_at": utc_now(), "probe_task": 0, "opened_at": None, "called_at": None}
    connection.execute(
        update(guard).where(guard.c.id == guard_id, guard.c.opened_at.is_not(None)).values(cause=cause.value, reason=reason[:500], **fresh)
    )


def probes_failed(connection: Connection, ids: Collection[int]) -> None:
    """Let these tasks pass no guard any more: a probe that has failed waits like the others, and another one is next."""
    if ids:
        connection.execute(update(guard).where(guard.c.probe_task.in_(sorted(ids))).values(probe_task=0))


def stopped(connection: Connection, keys: Collection[tuple[int, str]]) -> set[tuple[int, str]]:
    """Return those of these (batch, type) over which agents were lost too often."""
    ids = sorted({batch_id for batch_id, _ in keys})
    query = select(guard.c.batch_id, guard.c.type).where(guard.c.batch_id.in_(ids), guard.c.route == ANY_ROUTE, guard.c.opened_at.is_(None))
    return {(row.batch_id, row.type) for row in connection.execute(query)} & set(keys)


def raise_for_losses(connection: Connection, group: str, keys: Collection[tuple[int, str]], reason: str) -> None:
    """Raise the guards of these (batch, type), whatever the route."""
    wide = {Key(batch_id, task_type, ANY_ROUTE) for batch_id, task_type in keys}
    rows = _locked(connection, group, wide)
    for key in sorted(wide):
        _raise(connection, rows[key].id, Cause.WORKER_LOST, reason)
