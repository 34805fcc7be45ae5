"""Adds roll-ups and columns for screens, metrics and limits.

Existing counts are summed up once here, because rows of older versions lack the new columns.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from docllm.schemas.ledger.migrations import facts
from docllm.schemas.ledger.migrations.steps import OPTIONS, add_column, add_index
from docllm.schemas.ledger.sql import LONG_AGO, NEVER, BigId, LongText, Tiny, UtcTime, binary, name

revision = "0005"
down_revision = "0004"


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
    facts.fill_dead_letters(op.get_bind())
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
    facts.count_replays(op.get_bind())
    facts.fill_routes(op.get_bind())
    facts.sum_up(op.get_bind())


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
        "replay_run": [_big("total"), *(_big(title) for title in facts.ITEM_STATES)],
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
