"""Reads the groups of dead tasks from the roll-ups, and never a dead letter.

A batch counts a limited number of errors one by one. Its further errors are one group, with the
fingerprint OTHER_FINGERPRINTS.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, or_, select

from docllm.producer.ledger import tally
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.store import find_batch
from docllm.producer.ledger.tally import OTHER_FINGERPRINTS
from docllm.schemas.ledger.sql import LONG_AGO_TIME, NEVER_TIME
from docllm.schemas.ledger.tables import batch, failure_group

_BATCH_ENDED = or_(batch.c.cancelled_at.is_not(None), batch.c.archived_at.is_not(None))
_SUMS = ("attempts", *tally.SPENT)
OF_LETTER = ("batch_id", "fingerprint", "disposition", *_SUMS)


@dataclass(frozen=True, slots=True)
class TotalCost:
    """The cost of some tasks' attempts; `cost_micro` is in millionths of the currency's unit.

    `unpriced` counts their calls whose cost is unknown.
    """

    attempts: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_micro: int = 0
    unpriced: int = 0

    def __add__(self, other: "TotalCost") -> "TotalCost":
        return TotalCost(*(getattr(self, name) + getattr(other, name) for name in _SUMS))

    def __sub__(self, other: "TotalCost") -> "TotalCost":
        return TotalCost(*(getattr(self, name) - getattr(other, name) for name in _SUMS))


NOTHING = TotalCost()


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """The dead tasks of one error and disposition in one batch.

    Times are UTC without a zone. `first_at` is the first death of the group, even if its task was
    replayed since.
    """

    batch_id: int
    batch_ended: bool  # its batch is cancelled, archived or purged: nothing is replayed there
    fingerprint: bytes
    disposition: str
    error_class: str
    dead: int
    first_at: datetime
    last_at: datetime
    spent: TotalCost

    @property
    def key(self) -> tuple[int, bytes, str]:
        """Batch, fingerprint and disposition."""
        return self.batch_id, self.fingerprint, self.disposition


def answers(connection: Connection, group: str, selection: Selection) -> bool:
    """Return whether the roll-ups can answer the selection.

    They cannot single out one error from the common group of a batch's other errors.
    """
    if selection.since is not None or selection.until is not None or selection.key is not None:
        return False
    if selection.fingerprint is None:
        return True
    others = (
        select(batch.c.id)
        .join(failure_group, failure_group.c.batch_id == batch.c.id)
        .where(failure_group.c.fingerprint == OTHER_FINGERPRINTS, batch.c.group_name == group)
    )
    return connection.execute(others.limit(1)).scalar() is None


def read_groups(connection: Connection, group: str, selection: Selection) -> list[FailureGroup]:
    """Return the selected groups in which a task is dead, the oldest batch first."""
    named = None if selection.batch is None else find_batch(connection, selection.batch)
    if selection.batch is not None and named is None:
        return []
    batch_id = None if named is None else named.id
    failures = tally.failures(lambda column: _conditions(column, selection, batch_id))
    keys = (failures.c.batch_id, failures.c.fingerprint, failures.c.disposition)
    query = (
        select(
            *keys,
            _BATCH_ENDED.label("batch_ended"),
            func.max(failures.c.error_class).label("error_class"),
            func.sum(failures.c.dead).label("dead"),
            func.min(failures.c.first_at).label("first_at"),
            func.max(failures.c.last_at).label("last_at"),
            *(func.sum(failures.c[name]).label(name) for name in _SUMS),
        )
        .join(batch, batch.c.id == failures.c.batch_id)
        .where(batch.c.group_name == group, batch.c.purged_at.is_(None))
        .group_by(*keys, _BATCH_ENDED)
    )
    return with_replays([_group(row) for row in connection.execute(query)])


def with_replays(groups: Sequence[FailureGroup]) -> list[FailureGroup]:
    """Return the groups in which a task is dead, after replays were taken from their group.

    A fresh replay names the fingerprint of its task, although the death may be counted among the
    other errors of the batch.
    """
    by_key = {group.key: group for group in groups}
    for group in groups:
        others = (group.batch_id, OTHER_FINGERPRINTS, group.disposition)
        if group.dead < 0 and others in by_key:
            by_key[others] = _less(by_key[others], -group.dead, NOTHING - group.spent)
    return [by_key[key] for key in sorted(by_key) if by_key[key].dead > 0]


def without(groups: Sequence[FailureGroup], letters: Iterable[Row[Any]]) -> list[FailureGroup]:
    """Return the groups without these dead letters, which have the columns OF_LETTER."""
    by_key = {group.key: group for group in groups}
    for letter in letters:
        own = (letter.batch_id, bytes(letter.fingerprint), letter.disposition)
        key = own if own in by_key else (letter.batch_id, OTHER_FINGERPRINTS, letter.disposition)
        if key in by_key:
            by_key[key] = _less(by_key[key], 1, _spent(letter))
    return with_replays(list(by_key.values()))


def _less(group: FailureGroup, dead: int, spent: TotalCost) -> FailureGroup:
    return replace(group, dead=group.dead - dead, spent=group.spent - spent)


def _spent(row: Row[Any]) -> TotalCost:
    return TotalCost(*(int(getattr(row, name)) for name in _SUMS))


def _conditions(
    column: tally.Columns, selection: Selection, batch_id: int | None
) -> Iterator[ColumnElement[bool]]:
    if batch_id is not None:
        yield column["batch_id"] == batch_id
    for name, value in (("type", selection.type), ("tenant", selection.tenant)):
        if value is not None:
            yield column[name] == value
    if selection.dispositions:
        yield column["disposition"].in_(selection.dispositions)
    if selection.fingerprint:
        yield column["fingerprint"].between(*selection.fingerprint_range)


def _group(row: Row[Any]) -> FailureGroup:
    return FailureGroup(
        row.batch_id,
        bool(row.batch_ended),
        bytes(row.fingerprint),
        row.disposition,
        row.error_class,
        int(row.dead),
        row.first_at or NEVER_TIME,
        row.last_at or LONG_AGO_TIME,
        _spent(row),
    )
