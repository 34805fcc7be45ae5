"""Adds the locks that handlers take, and the tasks that wait for them."""

import sqlalchemy as sa
from alembic import op

from schemas.ledger.migrations.steps import OPTIONS, add_index
from schemas.ledger.sql import BigId, UtcTime, name, utc_default

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the tables that are missing."""
    op.create_table(
        "resource_lock",
        sa.Column("group_name", name(100), nullable=False),
        sa.Column("name", name(191), nullable=False),
        *(_number(title) for title in ("fence", "task_id", "owner", "tickets")),
        sa.Column("changed_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.PrimaryKeyConstraint("group_name", "name"),
        if_not_exists=True,
        **OPTIONS,
    )
    add_index("ix_resource_lock_changed", "resource_lock", ["changed_at"])
    add_index("ix_resource_lock_held", "resource_lock", ["group_name", "owner"])
    op.create_table(
        "lock_wait",
        sa.Column("group_name", name(100), nullable=False),
        sa.Column("name", name(191), nullable=False),
        sa.Column("task_id", BigId, autoincrement=False, nullable=False),
        *(_number(title) for title in ("ticket", "owner")),
        sa.Column("asked_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.PrimaryKeyConstraint("group_name", "name", "task_id"),
        if_not_exists=True,
        **OPTIONS,
    )
    add_index("ix_lock_wait_order", "lock_wait", ["group_name", "name", "ticket"])
    add_index("ix_lock_wait_asked", "lock_wait", ["asked_at"])


def _number(title: str) -> sa.Column[int]:
    return sa.Column(title, BigId, server_default=sa.text("0"), nullable=False)
