"""Adds the follow-ups of each task, and marks ledgers whose results may lie outside of them.

The results need no table. Once such a result is stored, `compatible_from` rises to this revision,
because older programs cannot export it.
"""

import sqlalchemy as sa
from alembic import op

from docllm.schemas.ledger.migrations.steps import OPTIONS
from docllm.schemas.ledger.sql import BigId

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create the table that is missing."""
    op.create_table(
        "follow_up",
        sa.Column("parent_id", BigId, autoincrement=False, nullable=False),
        sa.Column("task_id", BigId, autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("parent_id", "task_id"),
        if_not_exists=True,
        **OPTIONS,
    )
