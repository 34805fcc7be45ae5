"""From a record that names no task of ours to a task: what the intake, and a replay of the quarantine, make of it. Pure."""

from collections.abc import Callable

from producer.accept import new_task
from producer.quarantine import headers_blob
from producer.store import NewTask, direct_batch
from schemas.batch_name import RULE, is_batch_name
from schemas.envelope import BATCH_HEADER, UNREADABLE, RawHeaders
from schemas.line import BOM, LineError, parse

_NOT_UTF8 = "\ufffd"


def read(
    key: bytes | None, value: bytes | None, headers: RawHeaders, group: str, max_attempts_of: Callable[[str], int]
) -> tuple[str, NewTask]:
    """Return the batch that a record belongs to, and its task; raise LineError when it is none."""
    name = _batch_name(headers, group)
    body = _line(value or b"")
    return name, new_task(parse(body), body, max_attempts_of, raw_key=key, headers=headers_blob(headers))


def reason(error: LineError) -> str:
    """Return why a record is no task, for a person."""
    return f"{error.field or 'line'} {error.error}; {error.fix}"


def clash(batch_name: str) -> str:
    """Return why a batch does not take a task whose id it has."""
    return f"its id is in batch {batch_name!r} with other content"


def _line(value: bytes) -> bytes:
    """Return a line as `load` reads it from a file: a byte order mark and a line end are not content."""
    return value.removeprefix(BOM).removesuffix(b"\n").removesuffix(b"\r")


def _batch_name(headers: RawHeaders, group: str) -> str:
    """Return the batch that the producer names, or the group's own."""
    if any(name == UNREADABLE for name, _ in headers):
        raise LineError("headers", "have a name that is not UTF-8", "which batch is meant cannot be read; name headers in UTF-8")
    named = [value for name, value in headers if name == BATCH_HEADER and value]
    if not named:
        return direct_batch(group)
    text = named[-1].decode("utf-8", "replace")
    if _NOT_UTF8 in text:  # the quarantine keeps such a header with that character, and it may be replayed from there
        raise LineError(BATCH_HEADER, "is not UTF-8", "which batch is meant cannot be read; name it in UTF-8")
    if not is_batch_name(text):
        raise LineError(BATCH_HEADER, "is no batch name", RULE)
    return text
