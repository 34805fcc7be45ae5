"""Adds the release of each agent, result and attempt, and the counts of attempts by release.

Nothing is filled: agents of older versions have no release, and count for none.
"""

import sqlalchemy as sa
from alembic import op

from docllm.schemas.ledger.migrations.steps import OPTIONS, add_column
from docllm.schemas.ledger.sql import LONG_AGO, BigId, UtcTime, name

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the columns, and create the table if it is missing."""
    for table in ("agent", "task_result", "task_attempt"):
        column = sa.Column("release_name", name(64), server_default=sa.text("''"), nullable=False)
        add_column(table, column)
    numbers = ("succeeded", "failed", "cost_micro")
    op.create_table(
        "release_count",
        sa.Column("starts_at", UtcTime, nullable=False),
        sa.Column("group_name", name(100), nullable=False),
        sa.Column("agent_id", BigId, autoincrement=False, nullable=False),
        sa.Column("release_name", name(64), nullable=False),
        sa.Column("route", name(64), nullable=False),
        *(
            sa.Column(title, BigId, server_default=sa.text("0"), nullable=False)
            for title in numbers
        ),
        sa.Column("last_at", UtcTime, server_default=sa.text(f"'{LONG_AGO}'"), nullable=False),
        sa.PrimaryKeyConstraint("starts_at", "group_name", "agent_id", "release_name", "route"),
        if_not_exists=True,
        **OPTIONS,
    )
