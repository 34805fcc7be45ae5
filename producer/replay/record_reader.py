"""Reads quarantined records again, as the intake reads records of the inbox."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Row

from docllm.producer.ledger.quarantine import KEPT_BYTES, headers_of
from docllm.producer.loading import foreign_records
from docllm.producer.loading.foreign_records import ReadLine
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.task.line.parsing import LineError
from docllm.schemas.task.record.envelope import RawHeaders


class RecordReader:
    """Reads rows of the quarantine.

    `apart` reads lines that take long: in another process if this one has more to do. `failed` is
    told of errors that may be none of the record's.
    """

    def __init__(
        self,
        *,
        group: str,
        max_attempts_of: Callable[[str], int],
        apart: Executor,
        failed: Callable[[BaseException], object],
    ) -> None:
        self._group = group
        self._max_attempts_of = max_attempts_of
        self._apart = apart
        self._failed = failed

    async def read(self, rows: Sequence[Row[Any]]) -> dict[int, ReadLine]:
        """Return what each record is, by its number."""
        lines: dict[int, ReadLine] = {}
        for row in rows:
            lines[row.id] = await self._read(row)
            await asyncio.sleep(0)  # everything else gets its turn between two records
        return lines

    async def _read(self, row: Row[Any]) -> ReadLine:
        try:
            value, headers = _value(row), _headers(row.headers)
        except LineError as error:
            self._failed(error.__cause__ or error)
            return foreign_records.reason_text(error)
        return await foreign_records.read_apart(
            row.record_key,
            value,
            headers,
            group=self._group,
            max_attempts_of=self._max_attempts_of,
            apart=self._apart,
            failed=self._failed,
        )


def _value(row: Row[Any]) -> bytes:
    """Return the record's value; raise LineError if the ledger does not have all of it."""
    where = f"{row.topic}/{row.part}/{row.record_offset}"
    if row.value_digest is not None:
        fix = (
            f"the whole record is at {where} as long as its topic keeps it; "
            "produce it again to the inbox"
        )
        raise LineError(
            "value",
            f"had more than the {KEPT_BYTES >> 20} MiB that a task may have, and was cut",
            fix,
        )
    if row.record_value is None:
        raise LineError(
            "value",
            "is missing",
            f"look for the record at {where}; a record without a value is not a task",
        )
    return bytes(row.record_value)


def _headers(packed: bytes | None) -> RawHeaders:
    return [(name, None if value is None else value.encode()) for name, value in headers_of(packed)]
