"""Adds the lines of dead tasks, fields of providers' errors, and the lanes of tasks.

The line identifies a dead task whose letter comes back without headers. Tasks of older versions are
in the normal lane.
"""

import sqlalchemy as sa
from alembic import op

from docllm.schemas.ledger.migrations.lines import fill_dead_lines
from docllm.schemas.ledger.migrations.steps import OPTIONS, add_column
from docllm.schemas.ledger.sql import BigId, Blob, Tiny, binary, name

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the columns, create the table if it is missing, and fill it."""
    lane = sa.Column("lane", Tiny, server_default=sa.text("0"), nullable=False)
    add_column("task", lane)
    add_column("dead_letter", sa.Column("provider_error", Blob))
    op.create_table(
        "dead_line",
        sa.Column("group_name", name(100), nullable=False),
        sa.Column("digest", binary(16), nullable=False),
        sa.Column("task_id", BigId, nullable=False),
        sa.PrimaryKeyConstraint("group_name", "digest"),
        if_not_exists=True,
        **OPTIONS,
    )
    fill_dead_lines(op.get_bind())
