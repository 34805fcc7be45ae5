"""Writes counts in the transaction of each transition, so that no screen counts tasks.

A row's `state` is the state that was entered, and `delta` is how many tasks entered it.

An attempt that did not end its task is counted too, with its error class as `outcome`. Such rows
tell how often something failed, not how many tasks there are.

A replay takes its tasks out of `dead` or `cancelled` again: it writes a row like that of their end,
with a negative `delta`. So the sum of `delta` over a final state is how many tasks are in it, and
the sum of the positive deltas is how many tasks entered it.

Compaction moves old rows into roll-ups. So a query of all counts reads `counts` or `failures`: each
has the roll-up and the rows that are still in the tally, and one statement sees each count once.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Subquery,
    Table,
    case,
    func,
    literal,
    select,
    union_all,
)

from docllm.schemas.ledger.bulk import insert_rows
from docllm.schemas.ledger.query_plans import batches_of
from docllm.schemas.ledger.tables import failure_group, tally, tally_sum
from docllm.schemas.task.failures import TallyOutcome
from docllm.schemas.task.states import FINAL, Status

NO_FINGERPRINT = bytes(16)
# The group of the failures of a batch that has all the groups it may have.
OTHER_FINGERPRINTS = b"\xff" * 16
# The columns of what attempts used; `unpriced` counts the calls whose cost is unknown.
SPENT = ("tokens_in", "tokens_out", "cost_micro", "unpriced")
_OF_LETTER = ("batch_id", "type", "route", "fingerprint", "disposition", "model", "tenant")
_NO_COSTS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class TallyChange:
    """`delta` tasks entered a state, at this cost.

    `disposition` is that of a death or the kind of a note, or it marks follow-ups. The `dead_` sums
    cover all attempts of the tasks that died. They are negative when dead tasks are replayed.
    `tokens_cached` are part of `tokens_in`, and `unsure_micro` of `cost_micro`. `unpriced` counts
    the calls whose cost is unknown.
    """

    batch_id: int
    type: str
    route: str
    state: Status
    outcome: str
    fingerprint: bytes = NO_FINGERPRINT
    disposition: str = ""
    model: str = ""
    tenant: str = ""
    delta: int = 1
    tokens_in: int = 0
    tokens_out: int = 0
    cost_micro: int = 0
    tokens_cached: int = 0
    unsure_micro: int = 0
    dead_attempts: int = 0
    dead_tokens_in: int = 0
    dead_tokens_out: int = 0
    dead_cost_micro: int = 0
    unpriced: int = 0
    dead_unpriced: int = 0


def died(
    letter: Mapping[str, Any], delta: int = 1, *, costs: Mapping[str, Any] = _NO_COSTS
) -> TallyChange:
    """Return the count of a death, or of its replay with `delta` -1.

    `costs` are those of the attempt that died. All else is what the dead letter says, so a replay
    takes back exactly what the death counted.
    """
    return TallyChange(
        state=Status.DEAD,
        outcome=letter["error_class"],
        **{name: letter[name] for name in _OF_LETTER},
        delta=delta,
        dead_attempts=delta * letter["attempts"],
        dead_tokens_in=delta * letter["tokens_in"],
        dead_tokens_out=delta * letter["tokens_out"],
        dead_cost_micro=delta * letter["cost_micro"],
        dead_unpriced=delta * letter["unpriced"],
        **costs,
    )


def cancelled(row: Any, delta: int = 1) -> TallyChange:
    """Return the count of a cancelled task, or of its replay with `delta` -1, from its row.

    Both have the route that the row has while the task is cancelled.
    """
    return TallyChange(
        batch_id=row.batch_id,
        type=row.type,
        route=row.route,
        state=Status.CANCELLED,
        outcome=TallyOutcome.CANCELLED,
        tenant=row.tenant,
        delta=delta,
    )


_NAMES = TallyChange.__slots__
_KEY, _SUMS = _NAMES[: _NAMES.index("delta")], _NAMES[_NAMES.index("delta") :]
_key_of = attrgetter(*_KEY)

Columns = Mapping[str, ColumnElement[Any]]
# A function that takes the columns of a part of the counts and returns conditions on them.
Where = Callable[[Columns], Iterable[ColumnElement[bool]]]


def write(connection: Connection, changes: Iterable[TallyChange]) -> None:
    """Write the changes, one row for each key."""
    groups: dict[tuple[Any, ...], list[TallyChange]] = {}
    for change in changes:
        groups.setdefault(_key_of(change), []).append(change)
    insert_rows(connection, tally, list(map(_row, groups.values())))


def counts(where: Where) -> Subquery:
    """Return the counts that meet the conditions, with the columns of `tally_sum`.

    The column `entered` has the positive deltas only. Rows with a negative delta have NULL as
    `newest_at`.
    """
    return _with_tail(tally_sum, _RAW_COUNTS, where)


def failures(where: Where) -> Subquery:
    """Return deaths and replays that meet the conditions, in the columns of `failure_group`.

    A group has any number of rows. Those that are not rolled up yet have no `sample_task`, and
    `first_at` and `last_at` are NULL in rows of replays.
    """
    return _with_tail(failure_group, _RAW_FAILURES, where, tally.c.state == int(Status.DEAD))


def any_count(where: Where) -> ColumnElement[bool]:
    """Return a condition: some count meets the conditions. It reads no more than the first."""
    rolled_up = select(tally_sum.c.batch_id).where(*where(dict(tally_sum.c.items())))
    return rolled_up.exists() | select(tally.c.id).where(*where(_RAW_COUNTS)).exists()


def loaded(connection: Connection, batch_id: int) -> int:
    """Return how many tasks were ever loaded into a batch."""
    batch_counts = counts(
        lambda column: [
            column["batch_id"] == batch_id,
            column["state"] == int(Status.PENDING),
            column["outcome"] == TallyOutcome.LOADED,
        ]
    )
    return int(connection.execute(select(func.sum(batch_counts.c.delta))).scalar() or 0)


def unfinished(connection: Connection, group: str) -> Counter[str]:
    """Return how many tasks of each tenant are not final, over all batches of a group."""
    batches = batches_of(group)
    of_group = counts(lambda column: [column["batch_id"].in_(batches)])
    is_loaded = of_group.c.outcome == TallyOutcome.LOADED
    is_final = of_group.c.state.in_(FINAL)
    left = func.sum(case((is_loaded, of_group.c.delta), (is_final, -of_group.c.delta), else_=0))
    rows = connection.execute(select(of_group.c.tenant, left).group_by(of_group.c.tenant))
    return Counter({tenant: int(count) for tenant, count in rows if count > 0})


_ENTERED_AT = case((tally.c.delta > 0, tally.c.created_at))
_ENTERED = case((tally.c.delta > 0, tally.c.delta), else_=0)
# What a row of the tally is in a roll-up.
_RAW_COUNTS: Columns = {
    column.name: tally.c[column.name] for column in tally_sum.c if column.name in tally.c
} | {"entered": _ENTERED, "newest_at": _ENTERED_AT}
_RAW_FAILURES: Columns = {
    column.name: tally.c[column.name] for column in failure_group.primary_key
} | {
    "error_class": tally.c.outcome,
    "dead": tally.c.delta,
    "entered": _ENTERED,
    "first_at": _ENTERED_AT,
    "last_at": _ENTERED_AT,
    "sample_task": literal(0),
    "attempts": tally.c.dead_attempts,
    "tokens_in": tally.c.dead_tokens_in,
    "tokens_out": tally.c.dead_tokens_out,
    "cost_micro": tally.c.dead_cost_micro,
    "unpriced": tally.c.dead_unpriced,
}


def _with_tail(
    roll_up: Table[Any], raw: Columns, where: Where, *of_raw: ColumnElement[bool]
) -> Subquery:
    """Return a roll-up and the rows of the tally in one.

    Each part gets the conditions, because a server need not push them into a union.
    """
    rolled_up = select(roll_up).where(*where(dict(roll_up.c.items())))
    columns = [raw[column.name].label(column.name) for column in roll_up.c]
    tail = select(*columns).where(*where(raw), *of_raw)
    return union_all(rolled_up, tail).subquery()


def _row(changes: Sequence[TallyChange]) -> dict[str, Any]:
    """Return the row of changes that have the same key."""
    row = dict(zip(_KEY, _key_of(changes[0]), strict=True))
    row |= {"state": int(row["state"]), "outcome": row["outcome"][:64], "model": row["model"][:191]}
    return row | {name: sum(getattr(change, name) for change in changes) for name in _SUMS}
