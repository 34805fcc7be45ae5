"""Turns a foreign record, one that names no docllm task, into a task.

The intake and a replay of the quarantine use this module. Whatever a library raises while it reads
the record becomes a LineError, which concerns this record alone.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from docllm.producer.ledger.new_tasks import NewTask
from docllm.producer.ledger.quarantine import headers_blob
from docllm.producer.ledger.store import direct_batch
from docllm.producer.loading.task_row import new_task
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.settings.claim_time import over_limit
from docllm.schemas.task.batch_name import RULE, is_batch_name
from docllm.schemas.task.line.parsing import BOM, LineError, TaskLine, parse
from docllm.schemas.task.line.schema_cost import is_heavy_line
from docllm.schemas.task.line.strict_json import reading
from docllm.schemas.task.record import header_names
from docllm.schemas.task.record.envelope import RawHeaders
from docllm.schemas.text.untrusted import contained, describe_error, sealed
from docllm.schemas.text.wording import one_line

ReadLine = tuple[str, NewTask] | str  # a batch's name and its task, or why it is none
TOO_SLOW = "its schema takes too long to check; make it smaller, or simplify its patterns"
_NOT_UTF8 = "\ufffd"


async def read_apart(
    key: bytes | None,
    value: bytes | None,
    headers: RawHeaders,
    *,
    group: str,
    max_attempts_of: Callable[[str], int],
    limit_of: Callable[[str], float],
    apart: Executor,
    failed: Callable[[BaseException], object],
) -> ReadLine:
    """Return what a record is; a line that takes long is read on `apart`. Raises nothing.

    `limit_of` tells the most time that an attempt of a type may have: a line that asks for more is
    no task, as for a load.
    `failed` is called with errors that the record may not have caused.
    """
    try:
        body = line_of(value)
        is_heavy = sealed(partial(is_heavy_line, body))
        parsed = await apart(partial(sealed, partial(parsed_small, body))) if is_heavy else None
        with contained():
            line = parsed or parsed_here(body)
            _check_time(line, limit_of)
            return task_of(key, value, headers, group, max_attempts_of, line)
    except LineError as error:
        failed(error.__cause__ or error)
        return reason_text(error)
    except TimeoutError:
        return TOO_SLOW
    except Exception as error:  # noqa: BLE001 - it would fail in every program that reads it
        failed(error)
        return one_line(f"cannot be read: {describe_error(error)}")


def task_of(
    key: bytes | None,
    value: bytes | None,
    headers: RawHeaders,
    group: str,
    max_attempts_of: Callable[[str], int],
    parsed: TaskLine | None = None,
) -> tuple[str, NewTask]:
    """Return a record's batch name and its task. Raises LineError if the record is no task.

    `parsed` is the record's line if it was parsed before.
    """
    with reading(memory=True):
        name = _batch_name(headers, group)
        body = line_of(value)
        return name, new_task(
            parsed or _parsed(body),
            body,
            max_attempts_of,
            raw_key=key,
            headers=headers_blob(headers),
        )


def line_of(value: bytes | None) -> bytes:
    """Return the record's value as a line: without byte order mark and line end, as in a file."""
    return (value or b"").removeprefix(BOM).removesuffix(b"\n").removesuffix(b"\r")


def parsed_small(body: bytes) -> TaskLine:
    """Return the part of a line's parse that `task_of` needs, without large parts.

    It runs in a separate process, so the result must be small. Raises LineError.
    """
    with reading(memory=True):
        return replace(
            _parsed(body), prompt=None, text=None, params={}, schema=None, body=None, metadata=None
        )


def parsed_here(body: bytes) -> TaskLine:
    """Return the parse of a line in this process. Raises LineError."""
    with reading(memory=True):
        return _parsed(body)


def reason_text(error: LineError) -> str:
    """Return why a record is no task, for a person."""
    return f"{error.field or 'line'} {error.error}; {error.fix}"


def clash_text(batch_name: str) -> str:
    """Return why a batch does not take a task whose id it has already."""
    return f"its id is in batch {batch_name!r} with other content"


def _check_time(line: TaskLine, limit_of: Callable[[str], float]) -> None:
    if line.time_limit_s is None:
        return
    if fault := over_limit(line.type, line.time_limit_s, limit_of(line.type)):
        raise LineError("time_limit_s", *fault)


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
    """Return the batch that the producer names, or else the group's own batch."""
    if any(name == header_names.BAD_NAMES for name, _ in headers):
        raise LineError(
            "headers",
            "have a name that is not UTF-8",
            "the batch's name cannot be read; write header names in UTF-8",
        )
    values = [value for name, value in headers if name == header_names.BATCH and value]
    if not values:
        return direct_batch(group)
    text = values[-1].decode("utf-8", "replace")
    # The quarantine stores such a header with this character, and may replay the record from there.
    if _NOT_UTF8 in text:
        raise LineError(
            header_names.BATCH, "is not UTF-8", "the batch's name cannot be read; write it in UTF-8"
        )
    if not is_batch_name(text):
        raise LineError(header_names.BATCH, "is not a batch name", RULE)
    return text
