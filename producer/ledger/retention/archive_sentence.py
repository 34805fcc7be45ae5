"""Says in words that a batch is archived or purged, since when, and how to read it."""

import shlex
from pathlib import PurePosixPath

from sqlalchemy import Connection, select

from docllm.producer.ledger.retention.archive_rows import Archive, newest
from docllm.producer.text.times import written
from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.ledger.tables import batch
from docllm.schemas.task.allowed_uris import uri_parts


def archive_sentence(connection: Connection, name: str) -> str:
    """Return in words what became of a batch; empty if it is not archived, or does not exist."""
    row = connection.execute(select(batch).where(batch.c.name == name)).one_or_none()
    if row is None or row.archived_at is None:
        return ""
    state = f"was archived at {written(row.archived_at)}"
    if row.purged_at is not None:
        state = f"was purged at {written(row.purged_at)}"
    elif row.purging_at is not None:
        state = f"has been purged in part since {written(row.purging_at)}"
    last = newest(connection, [row.id]).get(row.id)
    where = "it has no archive" if last is None else f"its archive is {_reading(last)}"
    return f"batch {row.name!r} {state}; {where}"


def require_rows(connection: Connection, name: str) -> None:
    """Raise UnsafeStateError if the rows of a batch are purged; it says where its archive lies."""
    purged = select(batch.c.purged_at).where(batch.c.name == name)
    if connection.execute(purged).scalar() is not None:
        raise UnsafeStateError(f"nothing can be exported: {archive_sentence(connection, name)}")


def _reading(archive: Archive) -> str:
    """Return the address of an archive, with the command that reads it if it is near."""
    parts = uri_parts(archive.uri)
    if parts.scheme != "file" or archive.format != "jsonl":
        return archive.uri
    folder = shlex.quote(str(PurePosixPath("/", *parts.segments)))
    return f"{archive.uri}; to read it: zcat {folder}/part-*.jsonl.gz"
