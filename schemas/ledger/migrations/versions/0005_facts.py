"""Facts that screens, metrics and limits read: roll-ups, and what rows did not know of themselves.

The counts so far are summed up here, once, because rows of older versions lack the new columns.
"""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from schemas.ledger.migrations.steps import OPTIONS, add_column, add_index, commit_page
from schemas.ledger.sql import LONG_AGO, NEVER, BigId, LongText, Tiny, UtcTime, binary, name

revision = "0005"
down_revision = "0004"

_PAGE = 1000  # dead letters that one statement fills
_DEAD = 4  # the state
_ITEM_STATES = {"replayed": 1, "skipped": 2, "unread": 3}


def _word(title: str, length: int) -> sa.Column[str]:
    return sa.Column(title, name(length), server_default=sa.text("''"), nullable=False)


def _big(title: str) -> sa.Column[int]:
    return sa.Column(title, BigId, server_default=sa.text("0"), nullable=False)


def _small(title: str) -> sa.Column[int]:
    return sa.Column(title, sa.SmallInteger, server_default=sa.text("0"), nullable=False)


def _at(title: str, otherwise: str) -> sa.Column[Any]:
    return sa.Column(title, UtcTime, server_default=sa.text(f"'{otherwise}'"), nullable=False)


def _key(title: str, length: int) -> sa.Column[str]:
    return sa.Column(title, name(length), nullable=False)


def _number(title: str) -> sa.Column[int]:
    return sa.Column(title, BigId, autoincrement=False, nullable=False)


def _state() -> sa.Column[int]:
    return sa.Column("state", Tiny, autoincrement=False, nullable=False)


def upgrade() -> None:
    """Create what is missing, then fill it from the rows that exist."""
    for table, columns in _columns().items():
        for column in columns:
            add_column(table, column)
    _create_rollups()
    _fill_dead_letters()
    for index, table, names in (
        ("ix_task_open", "task", ["batch_id", "status", "due_at"]),
        ("ix_task_batch", "task", ["batch_id"]),
        ("ix_dead_group", "dead_letter", ["batch_id", "fingerprint", "disposition"]),
        ("ix_dead_died", "dead_letter", ["died_at"]),
        ("ix_dead_replays", "dead_letter", ["replays"]),
        ("ix_dead_expires", "dead_letter", ["expires_at"]),
        ("ix_audit_group", "audit", ["group_name", "created_at"]),
        ("ix_failure_fingerprint", "failure_group", ["fingerprint"]),
        ("ix_series_time", "tally_series", ["width_s", "starts_at"]),
        ("ix_replay_open", "replay_run", ["group_name", "ended_at"]),
        ("ix_replay_state", "replay_item", ["run_id", "state", "kind", "item_id"]),
    ):
        add_index(index, table, names)
    _count_replays()
    _fill_routes()
    _sum_up()


def _columns() -> dict[str, list[sa.Column[Any]]]:
    return {
        "ledger": [_word("compatible_from", 32)],
        "agent": [sa.Column("report", LongText), _word("revision", 32)],
        "batch": [sa.Column("options", LongText)],
        "task": [
            _word("carrier", 64),
            _word("route", 64),
            _big("parent_id"),
            _small("depth"),
            _at("claimed_at", LONG_AGO),
        ],
        "task_result": [_word("route", 64), _big("tokens_cached"), _big("unsure_micro")],
        "task_attempt": [
            _word("route", 64),
            _big("tokens_cached"),
            _big("unsure_micro"),
            _word("model", 191),
        ],
        "dead_letter": [
            _big("batch_id"),
            _word("type", 64),
            _word("tenant", 64),
            _small("replays"),
            _at("expires_at", NEVER),
            _word("route", 64),
            _word("model", 191),
            _big("attempts"),
            _big("tokens_in"),
            _big("tokens_out"),
            _big("cost_micro"),
        ],
        "tally": [
            _word("model", 191),
            _word("tenant", 64),
            _big("tokens_cached"),
            _big("unsure_micro"),
            _big("dead_attempts"),
            _big("dead_tokens_in"),
            _big("dead_tokens_out"),
            _big("dead_cost_micro"),
        ],
        "audit": [
            _word("group_name", 100),
            _word("kind", 32),
            _word("object", 191),
            _big("items"),
            _word("origin", 16),
        ],
        "replay_run": [_big("total"), *(_big(title) for title in _ITEM_STATES)],
        "replay_item": [_word("reason", 500)],
    }


def _create_rollups() -> None:
    op.create_table(
        "tally_sum",
        _number("batch_id"),
        _key("type", 64),
        _key("route", 64),
        _key("model", 191),
        _key("tenant", 64),
        _state(),
        _key("outcome", 64),
        _key("disposition", 32),
        _big("delta"),
        _big("entered"),
        _big("tokens_in"),
        _big("tokens_out"),
        _big("tokens_cached"),
        _big("cost_micro"),
        _big("unsure_micro"),
        _at("newest_at", LONG_AGO),
        sa.PrimaryKeyConstraint(
            "batch_id", "type", "route", "model", "tenant", "state", "outcome", "disposition"
        ),
        if_not_exists=True,
        **OPTIONS,
    )
    op.create_table(
        "failure_group",
        _number("batch_id"),
        _key("type", 64),
        _key("tenant", 64),
        _key("route", 64),
        _key("disposition", 32),
        sa.Column("fingerprint", binary(16), nullable=False),
        _word("error_class", 64),
        _big("dead"),
        _big("entered"),
        _at("first_at", NEVER),
        _at("last_at", LONG_AGO),
        _big("sample_task"),
        _big("attempts"),
        _big("tokens_in"),
        _big("tokens_out"),
        _big("cost_micro"),
        sa.PrimaryKeyConstraint(
            "batch_id", "type", "tenant", "route", "disposition", "fingerprint"
        ),
        if_not_exists=True,
        **OPTIONS,
    )
    op.create_table(
        "tally_series",
        _key("group_name", 100),
        sa.Column("width_s", sa.SmallInteger, autoincrement=False, nullable=False),
        sa.Column("starts_at", UtcTime, nullable=False),
        _key("route", 64),
        _state(),
        _key("outcome", 64),
        _big("entered"),
        _big("tokens_in"),
        _big("tokens_out"),
        _big("cost_micro"),
        sa.PrimaryKeyConstraint("group_name", "width_s", "starts_at", "route", "state", "outcome"),
        if_not_exists=True,
        **OPTIONS,
    )


def _count_replays() -> None:
    """Write the counts of the items of each replay into its row."""
    items = "(SELECT COUNT(*) FROM replay_item i WHERE i.run_id = replay_run.id"
    counts = {"total": f"{items})"} | {
        title: f"{items} AND i.state = {state})" for title, state in _ITEM_STATES.items()
    }
    op.get_bind().execute(
        sa.text(f"UPDATE replay_run SET {', '.join(f'{key} = {n}' for key, n in counts.items())}")
    )
    commit_page()


def _fill_dead_letters() -> None:
    """Copy what the dead letters lack from their tasks and attempts, page by page."""
    attempts = "FROM task_attempt a WHERE a.task_id = dead_letter.task_id"
    fill = sa.text(
        "UPDATE dead_letter SET "
        "batch_id = (SELECT t.batch_id FROM task t WHERE t.id = dead_letter.task_id), "
        "type = (SELECT t.type FROM task t WHERE t.id = dead_letter.task_id), "
        "tenant = (SELECT t.tenant FROM task t WHERE t.id = dead_letter.task_id), "
        "replays = (SELECT t.replays FROM task t WHERE t.id = dead_letter.task_id), "
        "expires_at = (SELECT t.expires_at FROM task t WHERE t.id = dead_letter.task_id), "
        f"attempts = (SELECT COUNT(*) {attempts}), "
        f"tokens_in = (SELECT COALESCE(SUM(a.tokens_in), 0) {attempts}), "
        f"tokens_out = (SELECT COALESCE(SUM(a.tokens_out), 0) {attempts}), "
        f"cost_micro = (SELECT COALESCE(SUM(a.cost_micro), 0) {attempts}) "
        "WHERE task_id BETWEEN :first AND :last "
        "AND EXISTS (SELECT 1 FROM task t WHERE t.id = dead_letter.task_id)"
    )
    for first, last in _pages():
        bounds = {"first": first, "last": last}
        op.get_bind().execute(fill, bounds)
        commit_page()


def _fill_routes() -> None:
    """Name the route of the deaths of each batch, type, fingerprint and disposition.

    If such deaths had several routes, it is one of them.
    """
    keys = ("batch_id", "type", "fingerprint", "disposition")
    counted = sa.text(
        f"SELECT {', '.join(keys)}, MAX(route) AS route FROM tally "
        f"WHERE state = {_DEAD} AND delta > 0 AND route <> '' GROUP BY {', '.join(keys)}"
    )
    fill = sa.text(
        "UPDATE dead_letter SET route = :route "
        f"WHERE {' AND '.join(f'{key} = :{key}' for key in keys)}"
    )
    for row in op.get_bind().execute(counted).mappings().all():
        op.get_bind().execute(fill, dict(row))
        commit_page()


def _pages() -> Iterator[tuple[int, int]]:
    """Yield the first and last task id of each page of dead letters."""
    after = 0
    query = sa.text(
        "SELECT MIN(task_id), MAX(task_id) FROM (SELECT task_id FROM dead_letter "
        "WHERE task_id > :after ORDER BY task_id LIMIT :most) AS page"
    )
    while True:
        first, last = op.get_bind().execute(query, {"after": after, "most": _PAGE}).one()
        if first is None:
            return
        yield first, last
        after = last


def _sum_up() -> None:
    """Move all counts into the roll-ups, in one transaction, unless that was done before.

    The groups of failures come from the dead letters: they are exact, and a count of a replay that
    an older version wrote names no route.
    """
    connection = op.get_bind()
    if connection.execute(sa.text("SELECT COUNT(*) FROM tally_sum")).scalar():
        return
    keys = "batch_id, type, route, model, tenant, state, outcome, disposition"
    groups = "batch_id, type, tenant, route, disposition, fingerprint"
    newest = connection.execute(sa.text("SELECT MAX(id) FROM tally")).scalar() or 0
    sums = (
        f"INSERT INTO tally_sum ({keys}, delta, entered, tokens_in, tokens_out, cost_micro, "
        f"newest_at) SELECT {keys}, SUM(delta), SUM(CASE WHEN delta > 0 THEN delta ELSE 0 END), "
        "SUM(tokens_in), SUM(tokens_out), SUM(cost_micro), "
        f"MAX(CASE WHEN delta > 0 THEN created_at ELSE '{LONG_AGO}' END) "
        f"FROM tally WHERE id <= :newest GROUP BY {keys}"
    )
    failures = (
        f"INSERT INTO failure_group ({groups}, error_class, dead, entered, first_at, last_at, "
        "sample_task, attempts, tokens_in, tokens_out, cost_micro) "
        f"SELECT {groups}, MAX(error_class), COUNT(*), COUNT(*), MIN(died_at), MAX(died_at), "
        "MIN(task_id), SUM(attempts), SUM(tokens_in), SUM(tokens_out), SUM(cost_micro) "
        f"FROM dead_letter GROUP BY {groups}"
    )
    connection.execute(sa.text(sums), {"newest": newest})
    connection.execute(sa.text(failures))
    connection.execute(sa.text("DELETE FROM tally WHERE id <= :newest"), {"newest": newest})
    commit_page()
