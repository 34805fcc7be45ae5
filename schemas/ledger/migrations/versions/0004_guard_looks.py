"""The looks of guards: how many tasks may go next, and which tasks go in the present look."""

import sqlalchemy as sa
from alembic import op

from docllm.schemas.ledger.migrations.steps import OPTIONS, add_column, add_index
from docllm.schemas.ledger.sql import BigId, Tiny, UtcTime

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create what is missing. A guard that is raised begins with a look of one task."""
    zero, one, none = sa.text("0"), sa.text("1"), sa.text("-1")
    long_ago = sa.text("'2000-01-01 00:00:00.000000'")
    add_column("guard", sa.Column("look_size", sa.Integer, server_default=one, nullable=False))
    add_column("guard", sa.Column("look_left", sa.Integer, server_default=none, nullable=False))
    add_column("guard", sa.Column("look_at", UtcTime, server_default=long_ago, nullable=False))
    add_column("guard", sa.Column("vouched", Tiny, server_default=zero, nullable=False))
    op.create_table(
        "guard_look",
        sa.Column("guard_id", BigId, autoincrement=False, nullable=False),
        sa.Column("task_id", BigId, autoincrement=False, nullable=False),
        sa.Column("fence", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("guard_id", "task_id"),
        if_not_exists=True,
        **OPTIONS,
    )
    add_index("ix_guard_look_task", "guard_look", ["task_id"])
