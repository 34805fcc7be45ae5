"""The ids of a batch's tasks, which are neighbours because a load takes them in blocks."""

from sqlalchemy import ColumnElement, Connection, select

from docllm.schemas.ledger.tables import task


def id_range(connection: Connection, batch_id: int) -> tuple[int, int]:
    """Return the first and last id of a batch's tasks; (1, 0) if it has none."""
    first = _first_in(connection, batch_id, task.c.id.asc())
    last = _first_in(connection, batch_id, task.c.id.desc())
    return first or 1, last or 0


def _first_in(connection: Connection, batch_id: int, order: ColumnElement[int]) -> int | None:
    query = select(task.c.id).where(task.c.batch_id == batch_id).order_by(order).limit(1)
    along_batch = query.with_hint(task, "FORCE INDEX (ix_task_batch)", "mysql")
    return connection.execute(along_batch).scalar()
