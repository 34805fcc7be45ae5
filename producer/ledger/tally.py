"""Counts of a batch, written in the transaction of each transition, so no screen counts tasks.

A row's `state` is the state that was entered, and `delta` is how many tasks entered it.

An attempt that did not end its task is counted too, with its error class as `outcome`. Such rows
tell how often something failed, not how many tasks there are.

A replay takes its tasks out of `dead` or `cancelled` again: it writes a row like that of their end,
with a negative `delta`. So the sum of `delta` over a final state is how many tasks are in it, and
the sum of the positive deltas is how many tasks entered it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, insert, select

from schemas.ledger.tables import tally
from schemas.task.failures import TallyOutcome
from schemas.task.states import Status

NO_FINGERPRINT = bytes(16)


@dataclass(frozen=True, slots=True)
class TallyKey:
    """The subject of a count. `disposition` is set for deaths only."""

    batch_id: int
    type: str
    route: str
    state: Status
    outcome: str
    fingerprint: bytes = NO_FINGERPRINT
    disposition: str = ""


@dataclass(frozen=True, slots=True)
class TallyChange:
    """`delta` tasks entered `key.state`, at this cost."""

    key: TallyKey
    delta: int = 1
    tokens_in: int = 0
    tokens_out: int = 0
    cost_micro: int = 0


def write(connection: Connection, changes: Iterable[TallyChange]) -> None:
    """Write the changes, one row for each key."""
    groups: dict[TallyKey, list[TallyChange]] = {}
    for change in changes:
        groups.setdefault(change.key, []).append(change)
    if groups:
        connection.execute(insert(tally), [_row(key, of_key) for key, of_key in groups.items()])


def loaded(connection: Connection, batch_id: int) -> int:
    """Return how many tasks were ever loaded into a batch."""
    query = select(func.sum(tally.c.delta)).where(
        tally.c.batch_id == batch_id,
        tally.c.state == int(Status.PENDING),
        tally.c.outcome == TallyOutcome.LOADED,
    )
    return int(connection.execute(query).scalar() or 0)


def _row(key: TallyKey, changes: Sequence[TallyChange]) -> dict[str, object]:
    return {
        "batch_id": key.batch_id,
        "type": key.type,
        "route": key.route,
        "state": int(key.state),
        "outcome": key.outcome[:64],
        "fingerprint": key.fingerprint,
        "disposition": key.disposition,
        "delta": sum(change.delta for change in changes),
        "tokens_in": sum(change.tokens_in for change in changes),
        "tokens_out": sum(change.tokens_out for change in changes),
        "cost_micro": sum(change.cost_micro for change in changes),
    }
