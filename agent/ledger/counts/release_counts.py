"""Counts the attempts of each release by minute and route, as SQL.

An agent adds to rows of its own, in the transaction of the settle, so agents never wait for each
other. Compaction adds rows up once their minutes are past: to a row of the minute for all agents,
which is kept for two hours, and to the sum of all minutes. A row is in one place at a time, so a
reader sees each attempt once.
"""

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from typing import Any

from sqlalchemy import Connection, Insert, RowMapping, Select, and_, bindparam, delete, select

from docllm.agent.ports import Settlement
from docllm.agent.ports.outcome import Dead, Outcome, Retry, Succeeded
from docllm.schemas.ledger.bulk import merge_rows
from docllm.schemas.ledger.sql import LONG_AGO_TIME, Merge, utc_after, utc_minute
from docllm.schemas.ledger.tables import release_count
from docllm.schemas.task.failures import UNTRIED
from docllm.schemas.task.owner import agent_of

# A minute is added up once no settle of it can be under way.
PAST_S = 300.0
KEPT_S = 7200.0
PAGE = 500  # rows of agents in one transaction
_NUMBERS = ("succeeded", "failed", "cost_micro", "unpriced")
_MERGE = Merge(added=_NUMBERS, greatest=("last_at",))
_NOW = {"starts_at": utc_minute(), "last_at": utc_minute()}
_KEY = tuple(column.name for column in release_count.primary_key)
_KEYS = [release_count.c[name] for name in _KEY]
_PAST = (
    select(*_KEYS)
    .where(release_count.c.agent_id > 0, release_count.c.starts_at < utc_after(-PAST_S))
    .order_by(*_KEYS)
    .limit(PAGE)
)
_OLD = (
    select(*_KEYS)
    .where(
        release_count.c.agent_id == 0,
        release_count.c.starts_at > LONG_AGO_TIME,
        release_count.c.starts_at < utc_after(-KEPT_S),
    )
    .order_by(*_KEYS)
    .limit(PAGE)
)
# Delete by the whole key. A range search would also lock the next row, which a settle may be
# changing.
_IS = and_(*(column == bindparam(f"of_{column.name}") for column in _KEYS))
_DELETE = delete(release_count).where(_IS)


def write(
    connection: Connection,
    group: str,
    chosen: Iterable[tuple[Settlement, Outcome]],
    release: str,
) -> None:
    """Count the attempts that succeeded, or failed and counted; `release` is this agent's."""
    counted: defaultdict[tuple[int, str], list[Outcome]] = defaultdict(list)
    for settlement, outcome in chosen if release else ():
        if isinstance(outcome, Succeeded) or _counts(outcome):
            counted[agent_of(settlement.owner), settlement.route].append(outcome)
    for (agent_id, route), outcomes in sorted(counted.items()):
        successes = sum(isinstance(outcome, Succeeded) for outcome in outcomes)
        row = {
            "group_name": group,
            "agent_id": agent_id,
            "release_name": release,
            "route": route,
            "succeeded": successes,
            "failed": len(outcomes) - successes,
            "cost_micro": sum(outcome.spent.cost_micro for outcome in outcomes),
            "unpriced": sum(outcome.spent.unpriced for outcome in outcomes),
        }
        connection.execute(_insert(connection.dialect.name), row)


def _counts(outcome: Outcome) -> bool:
    """Return whether an attempt was made, and counts as a failure."""
    return isinstance(outcome, Retry | Dead) and outcome.failure.error_class not in UNTRIED


@cache
def _insert(dialect: str) -> Insert:
    if dialect == "sqlite":
        return _MERGE.sqlite_insert(release_count).values(_NOW)
    from sqlalchemy.dialects import mysql  # noqa: PLC0415 - it loads all drivers of servers

    statement = mysql.insert(release_count).values(_NOW)
    added = {name: release_count.c[name] + statement.inserted[name] for name in _NUMBERS}
    return statement.on_duplicate_key_update(added)


def roll_up(connection: Connection) -> int:
    """Add up a page of the agents' rows whose minutes are past; return how many rows.

    Only one agent at a time may do so: the caller has the turn of compaction. A row that a settle
    has locked, because its agent was frozen, is left for a later round.
    """
    lock = select(release_count).where(_IS).with_for_update(skip_locked=True)
    rows = [
        row
        for key in _keys(connection, _PAST)
        for row in connection.execute(lock, key).mappings().all()
    ]
    merge_rows(connection, release_count, (roll for row in rows for roll in _rolls(row)), _MERGE)
    moved = [{f"of_{name}": row[name] for name in _KEY} for row in rows]
    if gone := [*moved, *_keys(connection, _OLD)]:
        connection.execute(_DELETE, gone)
    return len(rows)


def _keys(connection: Connection, query: Select[Any]) -> list[dict[str, Any]]:
    rows = connection.execute(query).mappings()
    return [{f"of_{name}": row[name] for name in _KEY} for row in rows]


def _rolls(row: RowMapping) -> Iterable[dict[str, Any]]:
    for starts_at in (row["starts_at"], LONG_AGO_TIME):
        yield {**row, "agent_id": 0, "starts_at": starts_at}
