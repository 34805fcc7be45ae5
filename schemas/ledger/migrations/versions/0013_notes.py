"""Adds the notes beside results. Older programs write none, and keep those that they find."""

import sqlalchemy as sa
from alembic import op

from docllm.schemas.ledger.migrations.steps import OPTIONS
from docllm.schemas.ledger.sql import BigId, LongText, name

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Create the table that is missing."""
    op.create_table(
        "result_note",
        sa.Column("task_id", BigId, autoincrement=False, nullable=False),
        sa.Column("kind", name(32), nullable=False),
        sa.Column("detail", LongText, nullable=False),
        sa.PrimaryKeyConstraint("task_id", "kind"),
        if_not_exists=True,
        **OPTIONS,
    )
