"""The first schema: all tables of the main job."""

import sqlalchemy as sa
from alembic import op

from docllm.schemas.ledger.migrations.steps import OPTIONS
from docllm.schemas.ledger.sql import (
    BigId,
    Blob,
    LongText,
    Tiny,
    UtcTime,
    binary,
    name,
    utc_default,
    varbinary,
)

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create missing tables and indexes.

    MySQL commits each statement, so a migration that broke off is simply started again.
    """
    op.create_table(
        "agent",
        sa.Column("id", BigId, autoincrement=False, nullable=False),
        sa.Column("name", name(191), server_default=sa.text("''"), nullable=False),
        sa.Column("group_name", name(100), server_default=sa.text("''"), nullable=False),
        sa.Column("version", name(32), server_default=sa.text("''"), nullable=False),
        sa.Column("notice", name(500), server_default=sa.text("''"), nullable=False),
        sa.Column("started_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.Column("seen_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.Column("steady_since", UtcTime, server_default=utc_default(), nullable=False),
        sa.Column("stopped_at", UtcTime, nullable=True),
        sa.Column("lost_at", UtcTime, nullable=True),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
        **OPTIONS,
    )
    _index("ix_agent_group", "agent", ["group_name", "seen_at"])
    op.create_table(
        "audit",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("created_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.Column("actor", name(191), server_default=sa.text("''"), nullable=False),
        sa.Column("action", name(64), server_default=sa.text("''"), nullable=False),
        sa.Column("detail", name(2000), server_default=sa.text("''"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
        if_not_exists=True,
        **OPTIONS,
    )
    op.create_table(
        "batch",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("name", name(191), nullable=False),
        sa.Column("group_name", name(100), server_default=sa.text("''"), nullable=False),
        sa.Column("created_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.Column("closed_at", UtcTime, nullable=True),
        sa.Column("cancelled_at", UtcTime, nullable=True),
        sa.Column("archived_at", UtcTime, nullable=True),
        sa.Column("note", name(500), server_default=sa.text("''"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        sqlite_autoincrement=True,
        if_not_exists=True,
        **OPTIONS,
    )
    op.create_table(
        "dead_letter",
        sa.Column("task_id", BigId, autoincrement=False, nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("disposition", name(32), server_default=sa.text("''"), nullable=False),
        sa.Column("error_class", name(64), server_default=sa.text("''"), nullable=False),
        sa.Column(
            "fingerprint",
            binary(16),
            nullable=False,
        ),
        sa.Column("error_text", name(2000), server_default=sa.text("''"), nullable=False),
        sa.Column("died_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.Column("origin_topic", name(249), server_default=sa.text("''"), nullable=False),
        sa.Column("origin_partition", sa.Integer(), server_default=sa.text("-1"), nullable=False),
        sa.Column("origin_offset", BigId, server_default=sa.text("-1"), nullable=False),
        sa.Column("origin_timestamp_ms", BigId, server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("task_id"),
        if_not_exists=True,
        **OPTIONS,
    )
    _index("ix_dead_fingerprint", "dead_letter", ["fingerprint"])
    op.create_table(
        "group_info",
        sa.Column("group_name", name(100), nullable=False),
        sa.Column("cluster_id", name(100), server_default=sa.text("''"), nullable=False),
        sa.Column("topic_ids", LongText, nullable=False),
        sa.PrimaryKeyConstraint("group_name"),
        if_not_exists=True,
        **OPTIONS,
    )
    op.create_table(
        "id_block",
        sa.Column("name", name(32), nullable=False),
        sa.Column("next", BigId, nullable=False),
        sa.PrimaryKeyConstraint("name"),
        if_not_exists=True,
        **OPTIONS,
    )
    op.create_table(
        "ledger",
        sa.Column(
            "ledger_id",
            binary(16),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("ledger_id"),
        if_not_exists=True,
        **OPTIONS,
    )
    op.create_table(
        "outbox",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("group_name", name(100), server_default=sa.text("''"), nullable=False),
        sa.Column("destination", name(64), server_default=sa.text("''"), nullable=False),
        sa.Column("due_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.Column("items", Blob, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
        if_not_exists=True,
        **OPTIONS,
    )
    _index("ix_outbox_due", "outbox", ["group_name", "due_at"])
    op.create_table(
        "quarantine",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("group_name", name(100), server_default=sa.text("''"), nullable=False),
        sa.Column("topic_id", name(64), server_default=sa.text("''"), nullable=False),
        sa.Column("topic", name(249), server_default=sa.text("''"), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("record_offset", BigId, nullable=False),
        sa.Column("record_key", Blob, nullable=True),
        sa.Column("record_value", Blob, nullable=True),
        sa.Column(
            "value_digest",
            binary(16),
            nullable=True,
        ),
        sa.Column("headers", Blob, nullable=True),
        sa.Column("disposition", name(32), server_default=sa.text("''"), nullable=False),
        sa.Column("error_text", name(2000), server_default=sa.text("''"), nullable=False),
        sa.Column("created_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.Column("seen", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint(
            "topic_id", "topic", "part", "record_offset", name="uq_quarantine_record"
        ),
        sqlite_autoincrement=True,
        if_not_exists=True,
        **OPTIONS,
    )
    op.create_table(
        "tally",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("created_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.Column("batch_id", BigId, nullable=False),
        sa.Column("type", name(64), server_default=sa.text("''"), nullable=False),
        sa.Column("route", name(64), server_default=sa.text("''"), nullable=False),
        sa.Column("state", Tiny, nullable=False),
        sa.Column("outcome", name(64), server_default=sa.text("''"), nullable=False),
        sa.Column(
            "fingerprint",
            binary(16),
            nullable=False,
        ),
        sa.Column("delta", BigId, nullable=False),
        sa.Column("tokens_in", BigId, server_default=sa.text("0"), nullable=False),
        sa.Column("tokens_out", BigId, server_default=sa.text("0"), nullable=False),
        sa.Column("cost_micro", BigId, server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
        if_not_exists=True,
        **OPTIONS,
    )
    _index("ix_tally_batch", "tally", ["batch_id", "created_at"])
    _index("ix_tally_created", "tally", ["created_at"])
    op.create_table(
        "task",
        sa.Column("id", BigId, autoincrement=False, nullable=False),
        sa.Column("batch_id", BigId, nullable=False),
        sa.Column(
            "task_key",
            varbinary(191),
            nullable=False,
        ),
        sa.Column(
            "digest",
            binary(16),
            nullable=False,
        ),
        sa.Column("type", name(64), server_default=sa.text("''"), nullable=False),
        sa.Column("tenant", name(64), server_default=sa.text("''"), nullable=False),
        sa.Column("status", Tiny, server_default=sa.text("0"), nullable=False),
        sa.Column("attempt", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("max_attempts", sa.SmallInteger(), server_default=sa.text("5"), nullable=False),
        sa.Column("lease_losses", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("replays", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("fence", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("owner", BigId, server_default=sa.text("0"), nullable=False),
        sa.Column("due_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.Column(
            "expires_at",
            UtcTime,
            server_default=sa.text("'9999-12-31 00:00:00.000000'"),
            nullable=False,
        ),
        sa.Column("created_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("batch_id", "task_key", name="uq_task_key"),
        if_not_exists=True,
        **OPTIONS,
    )
    _index("ix_task_due", "task", ["status", "due_at"])
    op.create_table(
        "task_attempt",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("task_id", BigId, nullable=False),
        sa.Column("owner", BigId, server_default=sa.text("0"), nullable=False),
        sa.Column("attempt", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("outcome", name(32), server_default=sa.text("''"), nullable=False),
        sa.Column("error_class", name(64), server_default=sa.text("''"), nullable=False),
        sa.Column("error_text", name(2000), server_default=sa.text("''"), nullable=False),
        sa.Column("trace_id", name(191), server_default=sa.text("''"), nullable=False),
        sa.Column("started_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.Column("duration_ms", BigId, server_default=sa.text("0"), nullable=False),
        sa.Column("tokens_in", BigId, server_default=sa.text("0"), nullable=False),
        sa.Column("tokens_out", BigId, server_default=sa.text("0"), nullable=False),
        sa.Column("cost_micro", BigId, server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
        if_not_exists=True,
        **OPTIONS,
    )
    _index("ix_attempt_task", "task_attempt", ["task_id", "owner"])
    op.create_table(
        "task_input",
        sa.Column("task_id", BigId, autoincrement=False, nullable=False),
        sa.Column("raw_key", Blob, nullable=True),
        sa.Column("headers", Blob, nullable=True),
        sa.Column("body", Blob, nullable=False),
        sa.PrimaryKeyConstraint("task_id"),
        if_not_exists=True,
        **OPTIONS,
    )
    op.create_table(
        "task_result",
        sa.Column("task_id", BigId, autoincrement=False, nullable=False),
        sa.Column("owner", BigId, server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.Column("model", name(191), server_default=sa.text("''"), nullable=False),
        sa.Column("tokens_in", BigId, server_default=sa.text("0"), nullable=False),
        sa.Column("tokens_out", BigId, server_default=sa.text("0"), nullable=False),
        sa.Column("cost_micro", BigId, server_default=sa.text("0"), nullable=False),
        sa.Column("trace_id", name(191), server_default=sa.text("''"), nullable=False),
        sa.Column("duration_ms", BigId, server_default=sa.text("0"), nullable=False),
        sa.Column("codec", Tiny, server_default=sa.text("0"), nullable=False),
        sa.Column("body", Blob, nullable=False),
        sa.PrimaryKeyConstraint("task_id"),
        if_not_exists=True,
        **OPTIONS,
    )


def _index(title: str, table: str, columns: list[str]) -> None:
    """Create an index if it is missing; MySQL has no IF NOT EXISTS for indexes."""
    if title not in {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}:
        op.create_index(title, table, columns)
