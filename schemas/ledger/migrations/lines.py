"""Fills the table of dead lines, which revision 0007 adds, from the dead letters."""

import sqlalchemy as sa
from sqlalchemy import Connection

from docllm.schemas.ledger.migrations.steps import commit_page, dead_letter_pages

_PAGE = 1000  # dead letters that one statement reads


def fill_dead_lines(connection: Connection) -> None:
    """Write the line of each dead letter; of tasks with one line the newest stays.

    It can run again. No agent that writes such rows runs before the migration has ended.
    """
    fill = sa.text(
        "REPLACE INTO dead_line (group_name, digest, task_id) "
        "SELECT b.group_name, t.digest, MAX(t.id) FROM dead_letter d "
        "JOIN task t ON t.id = d.task_id JOIN batch b ON b.id = t.batch_id "
        "WHERE d.task_id BETWEEN :first AND :last GROUP BY b.group_name, t.digest"
    )
    for first, last in dead_letter_pages(connection, _PAGE):
        connection.execute(fill, {"first": first, "last": last})
        commit_page(connection)
