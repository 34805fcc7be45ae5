"""Adds replay runs, guards of the dead-letter topic, and a person's order to resume a route."""

import sqlalchemy as sa
from alembic import op

from docllm.schemas.ledger.migrations.steps import OPTIONS, add_column, add_index
from docllm.schemas.ledger.sql import BigId, LongText, Tiny, UtcTime, binary, name, utc_default

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create missing tables, columns and indexes.

    MySQL commits each statement, so a migration that broke off is simply started again.
    """
    op.create_table(
        "replay_run",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("group_name", name(100), server_default=sa.text("''"), nullable=False),
        sa.Column("created_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.Column("actor", name(191), server_default=sa.text("''"), nullable=False),
        sa.Column("selection", LongText, nullable=False),
        sa.Column("stored_at", UtcTime, nullable=True),
        sa.Column("next_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.Column("ended_at", UtcTime, nullable=True),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
        sqlite_autoincrement=True,
        **OPTIONS,
    )
    op.create_table(
        "replay_item",
        sa.Column("run_id", BigId, autoincrement=False, nullable=False),
        sa.Column("kind", Tiny, autoincrement=False, nullable=False),
        sa.Column("item_id", BigId, autoincrement=False, nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("state", Tiny, server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "kind", "item_id"),
        if_not_exists=True,
        **OPTIONS,
    )
    op.create_table(
        "guard",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("group_name", name(100), server_default=sa.text("''"), nullable=False),
        sa.Column("batch_id", BigId, server_default=sa.text("0"), nullable=False),
        sa.Column("type", name(64), server_default=sa.text("''"), nullable=False),
        sa.Column("route", name(64), server_default=sa.text("''"), nullable=False),
        sa.Column("cause", name(32), server_default=sa.text("''"), nullable=False),
        sa.Column("reason", name(500), server_default=sa.text("''"), nullable=False),
        sa.Column("raised_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.Column("probe_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.Column("probe_task", BigId, server_default=sa.text("0"), nullable=False),
        sa.Column("opened_at", UtcTime, nullable=True),
        sa.Column("called_at", UtcTime, nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("batch_id", "type", "route", name="uq_guard_key"),
        if_not_exists=True,
        sqlite_autoincrement=True,
        **OPTIONS,
    )
    op.create_table(
        "route_resume",
        sa.Column("group_name", name(100), nullable=False),
        sa.Column("route", name(64), nullable=False),
        sa.Column("resumed_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.PrimaryKeyConstraint("group_name", "route"),
        if_not_exists=True,
        **OPTIONS,
    )
    add_column("quarantine", sa.Column("fingerprint", binary(16), nullable=True))
    add_column("quarantine", sa.Column("replayed_at", UtcTime, nullable=True))
    add_column(
        "tally", sa.Column("disposition", name(32), server_default=sa.text("''"), nullable=False)
    )
    add_index("ix_tally_key", "tally", ["batch_id", "type", "route", "created_at"])
