"""Reads a group's batches from the counts: numbers of tasks, costs, and rates.

A few statements read all batches. None of them grows with the number of tasks.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Row, Select, func, select

from docllm.producer.ledger import store
from docllm.producer.ledger import tally as counts
from docllm.producer.ledger.retention import archive_rows
from docllm.producer.ledger.status import due_later
from docllm.producer.ledger.status import retries as retry_rows
from docllm.producer.ledger.status.due_later import NOTHING_LATER, DueLater
from docllm.producer.ledger.status.retries import Retries, TiersOf, no_tiers
from docllm.producer.text.times import written
from docllm.schemas.ledger.sql import minutes_since, seconds_until, utc_after
from docllm.schemas.ledger.tables import batch, tally, task
from docllm.schemas.task.failures import FOLLOW_UP, UNTRIED, ErrorClass, TallyOutcome
from docllm.schemas.task.states import FINAL, Status
from docllm.schemas.text.wording import cost_units

MINUTES = 10  # minutes of history that are read
MAX_COUNTED = 20_000  # tasks that are read row by row
# The outcomes in the tally that are no failed attempts.
_NO_FAILURES = frozenset({*TallyOutcome, *UNTRIED} - {ErrorClass.EXPIRED, ErrorClass.CHILD_DEAD})
_WAITING = frozenset({Status.PENDING, Status.RETRYING})
_FINAL = tuple(map(int, FINAL))


@dataclass(frozen=True, slots=True)
class ArchivedBatch:
    """A batch's archive: its time, its URI (empty if unknown), and whether and when rows went."""

    at: str
    uri: str
    purged: bool
    purged_at: str | None = None


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """One batch. `eta_s` is None while nothing moves.

    `cost` is in the currency's unit, and None if no more is known than `unpriced_calls`, the calls
    whose cost is unknown.

    `eta_s` is no less than the time until the last of the `retries`, and of the tasks that were put
    off or wait for a time, is due.

    `per_minute` has the tasks that ended in each of the last ten minutes, oldest first; the last
    one is the minute until now. It is empty if none ended. `failed_lately` has the attempts of the
    last ten minutes, by class of error, that failed without ending their task. `follow_ups` counts
    the tasks that other tasks of the batch ordered; `counts["total"]` includes them.
    `notes` counts the results with a note of a kind, also those that were purged since.
    """

    name: str
    counts: dict[str, int]
    rate_per_s: float
    eta_s: float | None
    tokens_in: int
    tokens_out: int
    cost: float | None
    failures: dict[str, int] = field(default_factory=dict)
    cancelled: bool = False
    half_loaded: bool = False
    origin: str = "load"
    per_minute: tuple[int, ...] = ()
    failed_lately: dict[str, int] = field(default_factory=dict)
    follow_ups: int = 0
    archived: ArchivedBatch | None = None
    notes: dict[str, int] = field(default_factory=dict)
    retries: Retries | None = None
    unpriced_calls: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the form of `--json`."""
        retries = None if self.retries is None else self.retries.as_json()
        return asdict(replace(self, retries=None)) | {"retries": retries}

    @property
    def open(self) -> int:
        """How many tasks are not final."""
        return self.counts["pending"] + self.counts["processing"] + self.counts["retrying"]


def read_batches(
    connection: Connection,
    group: str,
    name: str | None = None,
    *,
    archived: bool = False,
    tiers_of: TiersOf = no_tiers,
) -> list[BatchStatus]:
    """Return the status of a group's batches, oldest first; with `name`, only of that batch.

    Archived batches are left out, except one that is named, or with `archived`.
    """
    chosen = select(batch).where(batch.c.group_name == group)
    if name is not None:
        chosen = chosen.where(batch.c.name == name)
    elif not archived:
        chosen = chosen.where(batch.c.archived_at.is_(None))
    rows = connection.execute(chosen.order_by(batch.c.id)).all()
    ids = chosen.with_only_columns(batch.c.id)
    sums, pace_of = _sums(connection, ids), paces(connection, ids)
    running = _running(connection, sums)
    is_retrying = any("retrying" in states for states in running.values())
    retries = retry_rows.read(connection, ids) if is_retrying else {}
    is_open = any(_counts(rows, {})["pending"] for rows in sums.values())
    later = due_later.read(connection, group) if is_open else {}
    half_loaded = set(store.half_loaded(connection, group))
    failed = _failed_lately(connection, sums)
    newest_archives = archive_rows.newest(
        connection, [row.id for row in rows if row.archived_at is not None]
    )
    return [
        _batch_status(
            row,
            sums.get(row.id, ()),
            pace_of.get(row.id, STILL),
            running.get(row.id, {}),
            half_loaded,
            failed.get(row.id, {}),
            _archived(row, newest_archives.get(row.id)),
            retries=Retries.of(retries.get(row.id, ()), tiers_of),
            later=later.get(row.id, NOTHING_LATER),
        )
        for row in rows
    ]


def _archived(row: Row[Any], newest_archive: archive_rows.Archive | None) -> ArchivedBatch | None:
    if row.archived_at is None:
        return None
    purged_at = None if row.purged_at is None else written(row.purged_at)
    uri = newest_archive.uri if newest_archive else ""
    return ArchivedBatch(written(row.archived_at), uri, purged_at is not None, purged_at)


def _running(
    connection: Connection, sums: Mapping[int, Sequence[Any]]
) -> dict[int, dict[str, int]]:
    """Return, by batch, how many tasks are processing and retrying.

    Only batches whose sums allow such tasks are queried. Processing tasks are held by agents and
    are never many. Of all retrying tasks in the ledger, only those due first are counted, so that
    an outage makes no screen slow. The others are shown as pending.
    """
    counts: dict[int, dict[str, int]] = {}
    for status, limit in ((Status.PROCESSING, None), (Status.RETRYING, MAX_COUNTED)):
        batches = [batch_id for batch_id, rows in sums.items() if _may_have(rows, status)]
        first_due = (
            select(task.c.batch_id)
            .where(task.c.status == int(status))
            .order_by(task.c.due_at)
            .limit(limit)
            .subquery()
        )
        query = (
            select(first_due.c.batch_id, func.count().label("n"))
            .where(first_due.c.batch_id.in_(batches))
            .group_by(first_due.c.batch_id)
        )
        for row in connection.execute(query) if batches else ():
            counts.setdefault(row.batch_id, {})[status.name.lower()] = row.n
    return counts


def _may_have(rows: Sequence[Any], status: Status) -> bool:
    """Return whether a batch with these sums may have tasks in this state.

    It needs tasks that are not final; for the retrying state, some must once have been sent to a
    tier.
    """
    return _counts(rows, {})["pending"] > 0 and (
        status is Status.PROCESSING or any(row.state == status for row in rows)
    )


def _failed_lately(
    connection: Connection, sums: Mapping[int, Sequence[Any]]
) -> dict[int, dict[str, int]]:
    """Return, by batch and class, the recently failed attempts that did not end their task.

    Only open batches with any such attempts are queried.
    """
    batches = [
        batch_id
        for batch_id, rows in sums.items()
        if _counts(rows, {})["pending"] and any(map(_tried_again, rows))
    ]
    if not batches:
        return {}
    failed = (
        tally.c.batch_id.in_(batches),
        tally.c.created_at > utc_after(-60.0 * MINUTES),
        tally.c.state.in_((int(Status.PENDING), int(Status.RETRYING))),
        tally.c.outcome.not_in(_NO_FAILURES),
    )
    query = select(tally.c.batch_id, tally.c.outcome, func.sum(tally.c.delta).label("n"))
    lately: dict[int, dict[str, int]] = {}
    for row in connection.execute(query.where(*failed).group_by(tally.c.batch_id, tally.c.outcome)):
        if row.n:
            lately.setdefault(row.batch_id, {})[row.outcome] = int(row.n)
    return lately


def _tried_again(row: Any) -> bool:
    """Return whether a sum counts failed attempts that did not end their task."""
    return row.outcome not in _NO_FAILURES and row.state in _WAITING


def _sums(connection: Connection, batches: Select[Any]) -> dict[int, list[Any]]:
    """Return the sums of each batch, by state, outcome and disposition."""
    of_batches = counts.counts(lambda column: [column["batch_id"].in_(batches)])
    keys = [of_batches.c[name] for name in ("batch_id", "state", "outcome", "disposition")]
    numbers = (
        func.sum(of_batches.c.delta).label("n"),
        *(func.sum(of_batches.c[name]).label(name) for name in counts.SPENT),
    )
    sums: dict[int, list[Any]] = {}
    for row in connection.execute(select(*keys, *numbers).group_by(*keys)):
        sums.setdefault(row.batch_id, []).append(row)
    return sums


@dataclass(frozen=True, slots=True)
class Pace:
    """How many tasks of a batch end: in a second of the last minute, and in each minute."""

    per_s: float = 0.0
    per_minute: tuple[int, ...] = ()


STILL = Pace()


def paces(connection: Connection, batches: Select[Any]) -> dict[int, Pace]:
    """Return how many tasks of each batch ended lately. The tally has the last minutes."""
    age_min = minutes_since(tally.c.created_at).label("age_min")
    ended = (
        tally.c.batch_id.in_(batches),
        tally.c.created_at > utc_after(-60.0 * MINUTES),
        tally.c.state.in_(_FINAL),
        tally.c.delta > 0,
    )
    oldest_s = func.min(seconds_until(tally.c.created_at)).label("oldest_s")
    query = select(tally.c.batch_id, age_min, func.sum(tally.c.delta).label("n"), oldest_s)
    minutes: dict[int, dict[int, Any]] = {}
    for row in connection.execute(query.where(*ended).group_by(tally.c.batch_id, age_min)):
        minutes.setdefault(row.batch_id, {})[row.age_min] = row
    return {batch_id: _pace(rows) for batch_id, rows in minutes.items()}


def _pace(minutes: Mapping[int, Any]) -> Pace:
    """Return the pace from the counts by minute, by age."""
    last = minutes.get(0)
    per_s = 0.0 if last is None else round(int(last.n) / max(1.0, -float(last.oldest_s)), 2)
    ages = reversed(range(MINUTES))
    return Pace(per_s, tuple(int(minutes[age].n) if age in minutes else 0 for age in ages))


def _batch_status(
    row: Row[Any],
    all_sums: Sequence[Any],
    pace: Pace,
    running: Mapping[str, int],
    half_loaded: Collection[str],
    failed_lately: dict[str, int],
    archived: ArchivedBatch | None,
    *,
    retries: Retries | None,
    later: DueLater,
) -> BatchStatus:
    counts = _counts(all_sums, running)
    unpriced = int(sum(sums.unpriced for sums in all_sums))
    waiting = counts["pending"] + counts["processing"] + counts["retrying"]
    return BatchStatus(
        name=row.name,
        counts=counts,
        rate_per_s=pace.per_s,
        eta_s=_eta_s(waiting, pace.per_s, retries, later),
        tokens_in=int(sum(sums.tokens_in for sums in all_sums)),
        tokens_out=int(sum(sums.tokens_out for sums in all_sums)),
        cost=cost_units(int(sum(sums.cost_micro for sums in all_sums)), unpriced),
        unpriced_calls=unpriced,
        failures=_failures(all_sums),
        cancelled=row.cancelled_at is not None,
        half_loaded=row.name in half_loaded,
        origin=store.Origin(row.note).name.lower(),
        per_minute=pace.per_minute,
        failed_lately=failed_lately,
        follow_ups=sum(int(sums.n) for sums in all_sums if sums.disposition == FOLLOW_UP),
        archived=archived,
        notes=_notes(all_sums),
        retries=retries,
    )


def _eta_s(waiting: int, per_s: float, retries: Retries | None, later: DueLater) -> float | None:
    """Return in how many seconds all is done if no retry fails; None if nobody can tell."""
    until_due_s = max(0.0 if retries is None else retries.left_s, later.left_s)
    others = waiting - (0 if retries is None else retries.tasks) - later.tasks
    if others <= 0:
        return round(until_due_s, 1)
    return round(max(others / per_s, until_due_s), 1) if per_s > 0 else None


def _counts(rows: Any, running: Mapping[str, int]) -> dict[str, int]:
    total = sum(
        int(row.n)
        for row in rows
        if row.state == Status.PENDING and row.outcome == TallyOutcome.LOADED
    )
    final = {
        status.name.lower(): sum(int(row.n) for row in rows if row.state == status)
        for status in (Status.SUCCEEDED, Status.DEAD, Status.CANCELLED)
    }
    processing, retrying = running.get("processing", 0), running.get("retrying", 0)
    pending = max(0, total - sum(final.values()) - processing - retrying)
    return {
        "total": total,
        "pending": pending,
        "processing": processing,
        "retrying": retrying,
    } | final


def _notes(rows: Any) -> dict[str, int]:
    """Return how many results have a note, by its kind."""
    notes = [row for row in rows if row.outcome == TallyOutcome.NOTE]
    return {row.disposition: int(row.n) for row in notes}


def _failures(rows: Any) -> dict[str, int]:
    """Return the numbers of dead tasks and of retried attempts, by outcome.

    The keys are `dead BAD_REQUEST` for tasks and `tried again RATE` for attempts that were not the
    last. The latter include attempts that do not count against the task's limit. A claim that was
    given back is no attempt.
    """
    numbers: dict[str, int] = {}
    for row in rows:
        if _tried_again(row) or (row.outcome not in _NO_FAILURES and row.state == Status.DEAD):
            name = f"{'dead' if row.state == Status.DEAD else 'tried again'} {row.outcome}"
            numbers[name] = numbers.get(name, 0) + int(row.n)
    return {name: count for name, count in numbers.items() if count}
