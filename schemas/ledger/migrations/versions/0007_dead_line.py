"""Adds the lines of dead tasks, by which a line that comes back without headers is recognized."""

import sqlalchemy as sa
from alembic import op

from schemas.ledger.migrations.lines import fill_dead_lines
from schemas.ledger.migrations.steps import OPTIONS
from schemas.ledger.sql import BigId, binary, name

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the table if it is missing, and fill it."""
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
