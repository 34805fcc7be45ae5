"""Fills the columns and roll-ups that revision 0005 adds, from the rows of older versions.

Each step can run again, even if agents of an older version have worked in between: its result
depends only on the rows, not on an earlier run.
"""

from collections.abc import Iterator, Sequence

import sqlalchemy as sa
from sqlalchemy import Connection, RowMapping

from docllm.schemas.ledger.migrations.steps import commit_page, dead_letter_pages
from docllm.schemas.ledger.sql import LONG_AGO

_PAGE = 1000  # dead letters that one statement fills, and rows that one INSERT has
_DEAD, _CANCELLED = 4, 5  # states
_MAX_GROUPS = 2000  # groups of failures of a batch; the others are one group
_OTHERS = f"x'{'ff' * 16}'"  # the fingerprint of that group

ITEM_STATES = {"replayed": 1, "skipped": 2, "unread": 3}  # of a replay's items

_KEYS = "batch_id, type, route, model, tenant, state, outcome, disposition"
_NUMBERS = (
    "delta",
    "entered",
    "tokens_in",
    "tokens_out",
    "tokens_cached",
    "cost_micro",
    "unsure_micro",
)
_SUMS = f"{', '.join(_NUMBERS)}, newest_at"
_NO_SUMS = f"0 AS entered, 0, 0, 0, 0, 0, '{LONG_AGO}'"
_GROUP = "batch_id, type, tenant, route, disposition"


def fill_dead_letters(connection: Connection) -> None:
    """Copy what the dead letters lack from their tasks and attempts, page by page."""
    attempts = "FROM task_attempt a WHERE a.task_id = dead_letter.task_id"
    copied = ("batch_id", "type", "tenant", "replays", "expires_at")
    copies = (
        f"{name} = (SELECT t.{name} FROM task t WHERE t.id = dead_letter.task_id)"
        for name in copied
    )
    summed = ("tokens_in", "tokens_out", "cost_micro")
    sums = (f"{name} = (SELECT COALESCE(SUM(a.{name}), 0) {attempts})" for name in summed)
    fill = sa.text(
        f"UPDATE dead_letter SET {', '.join(copies)}, {', '.join(sums)}, "
        f"attempts = (SELECT COUNT(*) {attempts}) WHERE task_id BETWEEN :first AND :last "
        "AND EXISTS (SELECT 1 FROM task t WHERE t.id = dead_letter.task_id)"
    )
    for first, last in dead_letter_pages(connection, _PAGE):
        connection.execute(fill, {"first": first, "last": last})
        commit_page(connection)


def count_replays(connection: Connection) -> None:
    """Write the counts of the items of each replay into its row."""
    items = "(SELECT COUNT(*) FROM replay_item i WHERE i.run_id = replay_run.id"
    counts = {"total": f"{items})"} | {
        title: f"{items} AND i.state = {state})" for title, state in ITEM_STATES.items()
    }
    values = ", ".join(f"{column} = {number}" for column, number in counts.items())
    connection.execute(sa.text(f"UPDATE replay_run SET {values}"))
    commit_page(connection)


def fill_routes(connection: Connection) -> None:
    """Name the route of the deaths of each batch, type, fingerprint and disposition.

    If such deaths had several routes, it is one of them. Counts of the first versions have no
    disposition; they name the route of what is left.
    """
    keys = "batch_id, type, fingerprint, disposition"
    counted = sa.text(
        f"SELECT {keys}, MAX(route) AS route FROM tally WHERE state = {_DEAD} AND delta > 0 "
        f"AND route <> '' GROUP BY {keys} ORDER BY disposition DESC"
    )
    fill = sa.text(
        "UPDATE dead_letter SET route = :route WHERE batch_id = :batch_id AND type = :type "
        "AND fingerprint = :fingerprint AND route = '' "
        "AND (disposition = :disposition OR :disposition = '')"
    )
    for rows in _parts(connection.execute(counted).mappings().all()):
        for row in rows:
            connection.execute(fill, dict(row))
        commit_page(connection)


def sum_up(connection: Connection) -> None:
    """Move all counts into the roll-ups, in one transaction that sees no half of another's.

    A count of a replay that an older version wrote names no route, and no count names a tenant. So
    the numbers of dead and cancelled tasks are computed from the dead letters and tasks, with route
    and tenant. Then a later replay reduces the correct sum. Tasks whose rows have been deleted stay
    counted, without route and tenant.
    """
    if connection.dialect.name != "sqlite":
        connection.commit()
        connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"))
    rows = connection.execute(sa.text(_all_counts())).mappings().all()
    connection.execute(sa.text("DELETE FROM tally_sum"))
    names = f"{_KEYS}, {_SUMS}".split(", ")
    values = ", ".join(f":{name}" for name in names)
    insert = sa.text(f"INSERT INTO tally_sum ({', '.join(names)}) VALUES ({values})")
    for part in _parts([row for row in rows if any(row[name] for name in _NUMBERS)]):
        connection.execute(insert, [dict(row) for row in part])
    connection.execute(sa.text("DELETE FROM failure_group"))
    connection.execute(sa.text(_failure_groups()))
    connection.execute(sa.text("DELETE FROM tally"))
    commit_page(connection)


def _parts(rows: Sequence[RowMapping]) -> Iterator[Sequence[RowMapping]]:
    return (rows[start : start + _PAGE] for start in range(0, len(rows), _PAGE))


def _all_counts() -> str:
    """Return the query of what `tally_sum` is to have, from itself, the tally and the rows."""
    ends = f"state IN ({_DEAD}, {_CANCELLED})"
    counts = (
        f"SELECT {_KEYS}, {_SUMS} FROM tally_sum UNION ALL SELECT {_KEYS}, delta, "
        "CASE WHEN delta > 0 THEN delta ELSE 0 END, tokens_in, tokens_out, tokens_cached, "
        "cost_micro, unsure_micro, "
        f"CASE WHEN delta > 0 THEN created_at ELSE '{LONG_AGO}' END FROM tally"
    )
    present = (
        f"SELECT batch_id, type, route, model, tenant, {_DEAD} AS state, error_class AS outcome, "
        "disposition, COUNT(*) AS delta FROM dead_letter "
        "GROUP BY batch_id, type, route, model, tenant, error_class, disposition "
        f"UNION ALL SELECT batch_id, type, route, '', tenant, {_CANCELLED}, 'cancelled', '', "
        f"COUNT(*) FROM task WHERE status = {_CANCELLED} GROUP BY batch_id, type, route, tenant"
    )
    # What is counted but not present, by the parts of the key that all counts have.
    rest = "batch_id, type, '' AS route, '' AS model, '' AS tenant, state, outcome, ''"
    delta = f"CASE WHEN {ends} THEN 0 ELSE delta END AS delta"
    rest_of_sums = _SUMS.partition(", ")[2]
    parts = (
        f"SELECT {_KEYS}, {delta}, {rest_of_sums} FROM ({counts}) AS counted",
        f"SELECT {rest}, delta, {_NO_SUMS} FROM ({counts}) AS counted WHERE {ends}",
        f"SELECT {rest}, -delta, {_NO_SUMS} FROM ({present}) AS present",
        f"SELECT {_KEYS}, delta, {_NO_SUMS} FROM ({present}) AS present",
    )
    sums = ", ".join(f"SUM({name}) AS {name}" for name in _NUMBERS)
    return (
        f"SELECT {_KEYS}, {sums}, MAX(newest_at) AS newest_at FROM ({' UNION ALL '.join(parts)}) "
        f"AS part GROUP BY {_KEYS}"
    )


def _failure_groups() -> str:
    """Return the INSERT of the groups of failures, from the dead letters.

    The largest groups of a batch keep their fingerprints.
    """
    sums = ("attempts", "tokens_in", "tokens_out", "cost_micro")
    added = ", ".join(f"SUM({name}) AS {name}" for name in sums)
    groups = (
        f"SELECT {_GROUP}, fingerprint, MAX(error_class) AS error_class, COUNT(*) AS dead, "
        f"MIN(died_at) AS first_at, MAX(died_at) AS last_at, MIN(task_id) AS sample, {added} "
        f"FROM dead_letter GROUP BY {_GROUP}, fingerprint"
    )
    ranked = (
        "SELECT g.*, ROW_NUMBER() OVER (PARTITION BY batch_id "
        f"ORDER BY dead DESC, sample) AS place FROM ({groups}) AS g"
    )
    stamped = (
        f"SELECT r.*, CASE WHEN place <= {_MAX_GROUPS} THEN fingerprint ELSE {_OTHERS} END "
        f"AS stamp FROM ({ranked}) AS r"
    )
    return (
        f"INSERT INTO failure_group ({_GROUP}, fingerprint, error_class, dead, entered, first_at, "
        f"last_at, sample_task, {', '.join(sums)}) SELECT {_GROUP}, stamp, MAX(error_class), "
        f"SUM(dead), SUM(dead), MIN(first_at), MAX(last_at), MIN(sample), {added} "
        f"FROM ({stamped}) AS s GROUP BY {_GROUP}, stamp"
    )
