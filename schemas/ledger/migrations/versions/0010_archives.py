"""Adds the archives of batches, and what was purged of each batch.

No existing row needs new values, because older programs neither archive nor purge. In a batch with
`archived_at`, older programs already treat missing tasks as done.
"""

import sqlalchemy as sa
from alembic import op

from docllm.schemas.ledger.migrations.steps import OPTIONS, add_column, add_index
from docllm.schemas.ledger.sql import BigId, UtcTime, binary, name, utc_default

revision = "0010"
down_revision = "0009"

_PURGED = ("purging_at", "purged_at", "inputs_purged_at", "results_purged_at", "dead_purged_at")


def upgrade() -> None:
    """Add the columns, and create the table if it is missing."""
    for title in _PURGED:
        add_column("batch", sa.Column(title, UtcTime, nullable=True))
    op.create_table(
        "archive",
        sa.Column("id", BigId, nullable=False, autoincrement=True),
        sa.Column("batch_id", BigId, nullable=False),
        _word("uri", 1000),
        _word("format", 16),
        *(_number(title) for title in ("files", "bytes", "tasks", "results", "dead")),
        sa.Column("digest", binary(32), nullable=True),
        _word("revision", 32),
        _word("version", 32),
        sa.Column("created_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.Column("verified_at", UtcTime, nullable=True),
        sa.Column("ended_at", UtcTime, nullable=True),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
        sqlite_autoincrement=True,
        **OPTIONS,
    )
    add_index("ix_archive_batch", "archive", ["batch_id"])
    add_index("ix_archive_verified", "archive", ["verified_at"])


def _word(title: str, length: int) -> sa.Column[str]:
    return sa.Column(title, name(length), server_default=sa.text("''"), nullable=False)


def _number(title: str) -> sa.Column[int]:
    return sa.Column(title, BigId, server_default=sa.text("0"), nullable=False)
