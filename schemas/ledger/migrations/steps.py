"""Steps of migrations that can run again, because MySQL commits each statement by itself."""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy import Connection

from docllm.schemas.runtime import crash

OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin",
    "mariadb_engine": "InnoDB", "mariadb_charset": "utf8mb4", "mariadb_collate": "utf8mb4_bin",
}  # fmt: skip


def add_column(table: str, column: sa.Column[Any]) -> None:
    """Add a column unless it exists; MySQL has no IF NOT EXISTS for it."""
    existing = {column_info["name"] for column_info in sa.inspect(op.get_bind()).get_columns(table)}
    if column.name not in existing:
        op.add_column(table, column)
        crash.reach("migrate.step_taken")


def add_index(name: str, table: str, columns: list[str]) -> None:
    """Create an index unless it exists."""
    if name not in {
        index_info["name"] for index_info in sa.inspect(op.get_bind()).get_indexes(table)
    }:
        op.create_index(name, table, columns)
        crash.reach("migrate.step_taken")


def commit_page(connection: Connection) -> None:
    """Commit what was written so far, where DDL commits by itself.

    On SQLite the whole migration is one transaction.
    """
    if connection.dialect.name != "sqlite":
        connection.commit()
    crash.reach("migrate.step_taken")


def dead_letter_pages(connection: Connection, size: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last task id of each page of dead letters."""
    after = 0
    query = sa.text(
        "SELECT MIN(task_id), MAX(task_id) FROM (SELECT task_id FROM dead_letter "
        "WHERE task_id > :after ORDER BY task_id LIMIT :size) AS page"
    )
    while True:
        first, last = connection.execute(query, {"after": after, "size": size}).one()
        if first is None:
            return
        yield first, last
        after = last
