"""Steps of migrations that can run again, because MySQL commits each statement by itself."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

from docllm.schemas.runtime import crash


def add_column(table: str, column: sa.Column[Any]) -> None:
    """Add a column unless it exists; MySQL has no IF NOT EXISTS for it."""
    existing = {column_info["name"] for column_info in sa.inspect(op.get_bind()).get_columns(table)}
    if column.name not in existing:
        op.add_column(table, column)
        crash.reach("migrate.step_taken")


def add_index(name: str, table: str, columns: Sequence[str]) -> None:
    """Create an index unless it exists."""
    if name not in {
        index_info["name"] for index_info in sa.inspect(op.get_bind()).get_indexes(table)
    }:
        op.create_index(name, table, list(columns))
        crash.reach("migrate.step_taken")
