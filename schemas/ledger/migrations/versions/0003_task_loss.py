"""Adds the tasks that ran in each lost agent, so that wrongly charged losses can be undone."""

import sqlalchemy as sa
from alembic import op

from docllm.schemas.ledger.migrations.steps import OPTIONS, add_index
from docllm.schemas.ledger.sql import BigId, UtcTime, utc_default

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table if it is missing."""
    op.create_table(
        "task_loss",
        sa.Column("task_id", BigId, autoincrement=False, nullable=False),
        sa.Column("agent_id", BigId, autoincrement=False, nullable=False),
        sa.Column("created_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", "agent_id"),
        if_not_exists=True,
        **OPTIONS,
    )
    add_index("ix_task_loss_agent", "task_loss", ["agent_id"])
