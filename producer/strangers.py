"""Turn a record that names no task of ours into a task, for the intake and for replays. Pure.

Whatever a library raises over a record becomes a LineError, which concerns this record alone.
"""

from collections.abc import Callable
from dataclasses import replace

from producer.accept import new_task
from producer.quarantine import headers_blob
from producer.store import NewTask, direct_batch
from schemas.batch_name import RULE, is_batch_name
from schemas.envelope import BATCH_HEADER, UNREADABLE, RawHeaders
from schemas.line import BOM, LineError, TaskLine, parse
from schemas.line_json import reading

_NOT_UTF8 = "\ufffd"


def read(
    key: bytes | None,
    value: bytes | None,
    headers: RawHeaders,
    group: str,
    max_attempts_of: Callable[[str], int],
    parsed: TaskLine | None = None,
) -> tuple[str, NewTask]:
    """Return the batch that a record belongs to, and its task; raise LineError when it is none.

    `parsed`: its line, if `head` has read it before.
    """
    with reading(memory=True):
        name = _batch_name(headers, group)
        body = line(value)
        return name, new_task(parsed or _parsed(body), body, max_attempts_of, raw_key=key, headers=headers_blob(headers))


def line(value: bytes | None) -> bytes:
    """Return a record's line as `load` reads it: without byte order mark and line end."""
    return (value or b"").removeprefix(BOM).removesuffix(b"\n").removesuffix(b"\r")


def head(body: bytes) -> TaskLine:
    """Return the small fields of a line, for `read`; a child process sends them back. Raises LineError."""
    with reading(memory=True):
        return replace(_parsed(body), prompt=None, text=None, params={}, schema=None, body=None, metadata=None)


def reason(error: LineError) -> str:
    """Return why a record is no task, for a person."""
    return f"{error.field or 'line'} {error.error}; {error.fix}"


def clash(batch_name: str) -> str:
    """Return why a batch does not take a task whose id it has."""
    return f"its id is in batch {batch_name!r} with other content"


def _parsed(body: bytes) -> TaskLine:
    """Return the line of a record; say of several lines that they should be several records."""
    try:
        return parse(body)
    except LineError as error:
        if error.field or b"\n" not in body.strip():
            raise
        fix = "one record is one line, and this one has several; with kcat add -l"
        raise LineError(error.field, error.error, fix) from None


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
