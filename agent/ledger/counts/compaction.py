"""Moves old counts from the tally into its roll-ups, as SQL, one page in each transaction.

A page is added to all three roll-ups and deleted in the same transaction, so a reader of a roll-up
and the tally sees each count once. One agent at a time compacts, for the whole ledger. Only
compaction writes the roll-ups.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, func, select

from docllm.agent.ledger.counts import release_counts
from docllm.producer.ledger.tally import OTHER_FINGERPRINTS, SPENT
from docllm.schemas.errors import DocllmError
from docllm.schemas.ledger.bulk import merge_rows
from docllm.schemas.ledger.sql import LONG_AGO_TIME, NEVER_TIME, Merge, insert_new, utc_after
from docllm.schemas.ledger.tables import (
    batch,
    dead_letter,
    failure_group,
    id_block,
    tally,
    tally_series,
    tally_sum,
)
from docllm.schemas.runtime import crash
from docllm.schemas.task.states import Status

TURN = "compaction"  # the row that the agent locks whose turn it is
LETTERS_READ = 200  # dead letters that are read to find one for a group
FORGOTTEN_AT_ONCE = 20  # minutes, or hours, that one transaction deletes

RowKey = tuple[Any, ...]
Roll = dict[str, Any]  # a row of a roll-up


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionLimits:
    """The limits of compaction.

    - `after_s`: age of a count from which on it is rolled up. Guards look back WINDOW_S in the
      tally alone, so less makes them see less.
    - `page`: most counts in one transaction.
    - `groups`: most groups of failures of a batch.
    """

    after_s: float = 900.0
    page: int = 2000
    groups: int = 2000


# The widths of the series in seconds, and how long the rows of each are kept.
_KEPT_S = {60: 48 * 3600.0, 3600: 400 * 86400.0}
_AMOUNTS = (*SPENT, "tokens_cached", "unsure_micro")
_COUNTS = Merge(added=("delta", "entered", *_AMOUNTS), greatest=("newest_at",))
_FAILURES = Merge(
    added=("dead", "entered", "attempts", *SPENT),
    least=("first_at",),
    greatest=("last_at", "sample_task"),  # an existing sample is kept
)
_SERIES = Merge(added=("entered", "tokens_in", "tokens_out", "cost_micro"))
_COUNT_KEY = tuple(column.name for column in tally_sum.primary_key)
_FAILURE_KEY = tuple(column.name for column in failure_group.primary_key)

_MY_TURN = select(id_block.c.name).where(id_block.c.name == TURN)
# Without the index hint, servers read and sorted all counts when most of them were old.
_PAGE = (
    select(tally)
    .with_hint(tally, "FORCE INDEX (ix_tally_created)", "mysql")
    .where(tally.c.created_at < utc_after(bindparam("age_s")))
    .order_by(tally.c.created_at, tally.c.id)
    .limit(bindparam("page"))
)
_DELETE = delete(tally).where(tally.c.id.in_(bindparam("ids", expanding=True)))
_GROUPS_OF = select(batch.c.id, batch.c.group_name).where(
    batch.c.id.in_(bindparam("ids", expanding=True))
)
_KNOWN = select(
    failure_group.c.sample_task, *(failure_group.c[name] for name in _FAILURE_KEY)
).where(
    failure_group.c.batch_id.in_(bindparam("batches", expanding=True)),
    failure_group.c.fingerprint.in_(bindparam("fingerprints", expanding=True)),
)
_NUMBERS = (
    select(failure_group.c.batch_id, func.count().label("n"))
    .where(failure_group.c.batch_id.in_(bindparam("batches", expanding=True)))
    .where(failure_group.c.fingerprint != OTHER_FINGERPRINTS)
    .group_by(failure_group.c.batch_id)
)
_LETTERS = (
    select(dead_letter.c.task_id, dead_letter.c.type, dead_letter.c.tenant, dead_letter.c.route)
    .where(
        dead_letter.c.batch_id == bindparam("batch_id"),
        dead_letter.c.fingerprint == bindparam("fingerprint"),
        dead_letter.c.disposition == bindparam("disposition"),
    )
    .limit(LETTERS_READ)
)


def compact(connection: Connection, limits: CompactionLimits) -> int:
    """Move a page of old counts into the roll-ups; return how many.

    Nothing is moved while another agent has the turn. Raises DocllmError if somebody else deletes
    counts.
    """
    if not _take_turn(connection):
        return 0
    rows = connection.execute(_PAGE, {"age_s": -limits.after_s, "page": limits.page}).all()
    if rows:
        _add(connection, rows, limits)
        crash.reach("compact.added")
        deleted = connection.execute(_DELETE, {"ids": [row.id for row in rows]}).rowcount
        if deleted != len(rows):
            raise DocllmError(
                f"{len(rows)} counts were read to be rolled up and {deleted} were there to be "
                "deleted; another program deletes from the table tally"
            )
    release_counts.roll_up(connection)
    _forget(connection)
    return len(rows)


def _take_turn(connection: Connection) -> bool:
    """Return whether it is this transaction's turn; then no other compacts until it ends."""
    lock_turn = _MY_TURN.with_for_update(skip_locked=True)
    if connection.execute(lock_turn).scalar() is not None:
        return True
    if connection.execute(_MY_TURN).scalar() is not None:
        return False  # another agent has locked it
    connection.execute(insert_new(connection, id_block), {"name": TURN, "next": 0})
    return connection.execute(lock_turn).scalar() is not None


def _add(connection: Connection, rows: Sequence[Row[Any]], limits: CompactionLimits) -> None:
    merge_rows(connection, tally_sum, map(_count, rows), _COUNTS)
    merge_rows(connection, failure_group, _failures(connection, rows, limits.groups), _FAILURES)
    ids = sorted({row.batch_id for row in rows})
    groups = {row.id: row.group_name for row in connection.execute(_GROUPS_OF, {"ids": ids})}
    series = (_part(row, groups.get(row.batch_id, ""), width) for row in rows for width in _KEPT_S)
    merge_rows(connection, tally_series, series, _SERIES)


def _count(row: Row[Any]) -> Roll:
    entered = max(0, row.delta)
    newest_at = row.created_at if entered else LONG_AGO_TIME
    same = {name: getattr(row, name) for name in (*_COUNT_KEY, "delta", *_AMOUNTS)}
    return same | {"entered": entered, "newest_at": newest_at}


def _part(row: Row[Any], group: str, width_s: int) -> Roll:
    return {
        "group_name": group,
        "width_s": width_s,
        "starts_at": row.created_at - (row.created_at - LONG_AGO_TIME) % timedelta(seconds=width_s),
        "route": row.route,
        "state": row.state,
        "outcome": row.outcome,
        "entered": max(0, row.delta),
        "tokens_in": row.tokens_in,
        "tokens_out": row.tokens_out,
        "cost_micro": row.cost_micro,
    }


def _failures(connection: Connection, rows: Sequence[Row[Any]], most: int) -> list[Roll]:
    """Return the groups of failures of the deaths and replays among these counts."""
    ends = [(_failure_key(row), row) for row in rows if row.state == Status.DEAD]
    if not ends:
        return []
    keys = list(dict.fromkeys(key for key, _ in ends))
    known_samples = _known(connection, keys)
    chosen = _chosen(connection, keys, known_samples, most)
    died = {key for key, row in ends if row.delta > 0 and not known_samples.get(chosen[key])}
    new_samples = {key: _sample(connection, key) for key in sorted(died)}
    return [_failure(row, chosen[key], new_samples.get(key, 0)) for key, row in ends]


def _failure_key(row: Row[Any]) -> RowKey:
    return tuple([getattr(row, name) for name in _FAILURE_KEY])


def _known(connection: Connection, keys: Sequence[RowKey]) -> dict[RowKey, int]:
    """Return the samples of the existing groups to which these keys may belong."""
    fingerprints = sorted({OTHER_FINGERPRINTS, *(key[-1] for key in keys)})
    where = {"batches": sorted({key[0] for key in keys}), "fingerprints": fingerprints}
    return {_failure_key(row): row.sample_task for row in connection.execute(_KNOWN, where)}


def _chosen(
    connection: Connection, keys: Sequence[RowKey], known: Mapping[RowKey, int], most: int
) -> dict[RowKey, RowKey]:
    """Return the group of each key: its own, or a common one once the batch has enough."""
    new = [key for key in keys if key not in known]
    batches = sorted({key[0] for key in new})
    rows = connection.execute(_NUMBERS, {"batches": batches}) if new else ()
    numbers = dict.fromkeys(batches, 0) | {row.batch_id: row.n for row in rows}
    chosen = {key: key for key in keys}
    for key in new:
        if numbers[key[0]] < most:
            numbers[key[0]] += 1
        else:
            chosen[key] = (*key[:-1], OTHER_FINGERPRINTS)
    return chosen


def _sample(connection: Connection, key: RowKey) -> int:
    """Return a dead task of the key, or 0 if none is found soon."""
    wanted = dict(zip(_FAILURE_KEY, key, strict=True))
    of_group = (wanted["type"], wanted["tenant"], wanted["route"])
    letters = connection.execute(
        _LETTERS, {name: wanted[name] for name in ("batch_id", "fingerprint", "disposition")}
    )
    fitting = (
        row.task_id for row in letters.all() if (row.type, row.tenant, row.route) == of_group
    )
    return min(fitting, default=0)


def _failure(row: Row[Any], key: RowKey, sample: int) -> Roll:
    entered = max(0, row.delta)
    return dict(zip(_FAILURE_KEY, key, strict=True)) | {
        "error_class": row.outcome,
        "dead": row.delta,
        "entered": entered,
        "first_at": row.created_at if entered else NEVER_TIME,
        "last_at": row.created_at if entered else LONG_AGO_TIME,
        "sample_task": sample,
        "attempts": row.dead_attempts,
        "tokens_in": row.dead_tokens_in,
        "tokens_out": row.dead_tokens_out,
        "cost_micro": row.dead_cost_micro,
        "unpriced": row.dead_unpriced,
    }


def _forget(connection: Connection) -> None:
    """Delete the oldest rows of the series that are kept no longer."""
    for width_s, kept_s in _KEPT_S.items():
        starts_at = tally_series.c.starts_at
        of_width = tally_series.c.width_s == width_s
        old = select(starts_at).where(of_width, starts_at < utc_after(-kept_s)).distinct()
        oldest = connection.execute(old.order_by(starts_at).limit(FORGOTTEN_AT_ONCE)).scalars()
        if begins := oldest.all():
            connection.execute(delete(tally_series).where(of_width, starts_at.in_(begins)))
