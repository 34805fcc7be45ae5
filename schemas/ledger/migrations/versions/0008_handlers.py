"""Adds the locks that handlers take, and the hooks that run after attempts."""

import sqlalchemy as sa
from alembic import op

from docllm.schemas.ledger.migrations.steps import OPTIONS, add_index
from docllm.schemas.ledger.sql import BigId, Tiny, UtcTime, name, utc_default

revision = "0008"
down_revision = "0007"

_HOOK_KIND = (("group_name", 100), ("type", 64), ("event", 16))


def upgrade() -> None:
    """Create the tables that are missing."""
    _create_locks()
    _create_hook()
    op.create_table(
        "hook_type",
        *(_key_word(title, length) for title, length in _HOOK_KIND),
        _time("seen_at"),
        sa.PrimaryKeyConstraint("group_name", "type", "event"),
        if_not_exists=True,
        **OPTIONS,
    )


def _create_locks() -> None:
    op.create_table(
        "resource_lock",
        sa.Column("group_name", name(100), nullable=False),
        sa.Column("name", name(191), nullable=False),
        *(_number(title, BigId) for title in ("fence", "task_id", "owner", "tickets")),
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
        *(_number(title, BigId) for title in ("ticket", "owner")),
        sa.Column("asked_at", UtcTime, server_default=utc_default(), nullable=False),
        sa.PrimaryKeyConstraint("group_name", "name", "task_id"),
        if_not_exists=True,
        **OPTIONS,
    )
    add_index("ix_lock_wait_order", "lock_wait", ["group_name", "name", "ticket"])
    add_index("ix_lock_wait_asked", "lock_wait", ["asked_at"])


def _create_hook() -> None:
    op.create_table(
        "hook",
        sa.Column("id", BigId, nullable=False, autoincrement=True),
        *(_word(title, length) for title, length in _HOOK_KIND),
        _number("state", Tiny),
        _time("due_at"),
        _number("owner", BigId),
        _number("tries", sa.SmallInteger()),
        _number("losses", sa.SmallInteger()),
        _time("created_at"),
        sa.Column("task_id", BigId, nullable=False),
        sa.Column("batch_id", BigId, nullable=False),
        _word("route", 64),
        _word("status", 16),
        _number("attempts", sa.SmallInteger()),
        _word("disposition", 32),
        _word("error_class", 64),
        _word("error_text", 2000),
        _word("failure", 2000),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
        sqlite_autoincrement=True,
        **OPTIONS,
    )
    add_index("ix_hook_due", "hook", ["group_name", "state", "type", "event", "due_at"])
    add_index("ix_hook_task", "hook", ["task_id"])


def _word(title: str, length: int) -> sa.Column[str]:
    return sa.Column(title, name(length), server_default=sa.text("''"), nullable=False)


def _key_word(title: str, length: int) -> sa.Column[str]:
    return sa.Column(title, name(length), nullable=False)


def _number(title: str, kind: sa.types.TypeEngine[int]) -> sa.Column[int]:
    return sa.Column(title, kind, server_default=sa.text("0"), nullable=False)


def _time(title: str) -> sa.Column[object]:
    return sa.Column(title, UtcTime, server_default=utc_default(), nullable=False)
