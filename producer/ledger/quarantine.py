"""Quarantines records that name no trustworthy task.

The row and the order for its dead letter are written in one transaction. Nothing in here may fail
for ever: values are cut to the size that fits, and a record that comes again is only counted.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import orjson
from sqlalchemy import Connection, select, update

from producer.ledger import outbox
from producer.ports import Order
from schemas.ledger.sql import insert_new
from schemas.ledger.tables import quarantine
from schemas.task.envelope import BATCH_HEADER, MAX_TASK_BYTES, Outgoing, RawHeaders
from schemas.task.failures import Disposition
from schemas.task.fingerprint import fingerprint
from schemas.task.line_json import reading
from schemas.task.rejected_record import RejectedRecord
from schemas.task.untrusted import contained, told
from schemas.task.wording import one_line

KEPT_BYTES = MAX_TASK_BYTES  # of a value; a larger value cannot be a task
BEGINNING_BYTES = 64 << 10  # stored of a larger value, and of a key
KEPT_HEADER_BYTES = 8 << 10
KEPT_BATCH_BYTES = 1000  # of a batch name; a larger value cannot be a name
OURS = "docllm-"


def keep(connection: Connection, group: str, suspects: Sequence[RejectedRecord]) -> list[Order]:
    """Store rejected records; return the order for the dead letters of the new ones.

    A record that is stored already is only counted once more.
    """
    new = []
    for suspect in suspects:
        place = (
            quarantine.c.topic_id == suspect.topic_id,
            quarantine.c.topic == suspect.topic,
            quarantine.c.part == suspect.partition,
            quarantine.c.record_offset == suspect.offset,
        )
        known = connection.execute(select(quarantine.c.id).where(*place)).scalar()
        if known is not None:
            connection.execute(
                update(quarantine)
                .where(quarantine.c.id == known)
                .values(seen=quarantine.c.seen + 1)
            )
            continue
        connection.execute(insert_new(connection, quarantine), _row(group, suspect))
        row_id = connection.execute(select(quarantine.c.id).where(*place)).scalar_one()
        new.append((outbox.QUARANTINE, row_id, 0))
    return outbox.place(connection, group, "dlq", new)


def undeliverable(
    connection: Connection, group: str, item: outbox.Item, record: Outgoing, reason: str
) -> None:
    """Store a trace of an order's item that its topic refuses even as a pointer.

    There is no dead letter for it.
    """
    where = f"order:{record.topic}:{item[0]}:{item[1]}:{item[2]}"
    suspect = RejectedRecord(
        "", where[:249], 0, item[1], record.key, None, record.headers, reason, Disposition.REJECTED
    )
    connection.execute(insert_new(connection, quarantine), _row(group, suspect))


def headers_blob(headers: RawHeaders) -> bytes:
    """Return headers as JSON pairs of texts, at most 8 KiB.

    Bytes that are not UTF-8 become escapes. The batch header comes first, because a replay without
    it would put the task into another batch. Only the last batch header is kept: it is the one that
    counts. Then come the other docllm headers, since they say what the record is, and last all
    others.
    """
    kept: list[bytes] = []
    size = len("[]")
    named = islice(
        (header for header in reversed(headers) if header[0] == BATCH_HEADER and header[1]), 1
    )
    first = islice(headers, KEPT_HEADER_BYTES)  # a record of 4 MiB may have half a million headers
    others = sorted((header for header in first if header[0] != BATCH_HEADER), key=_rank)
    for name, raw in (*named, *others):
        value = raw[:KEPT_BATCH_BYTES] if raw and name == BATCH_HEADER else raw
        pair = orjson.dumps(
            [_utf8(name), None if value is None else value.decode("utf-8", "backslashreplace")]
        )
        size += len(pair) + len(",")
        if size > KEPT_HEADER_BYTES:
            break
        kept.append(pair)
    return b"[" + b",".join(kept) + b"]"


def headers_of(blob: bytes | None) -> list[tuple[str, str | None]]:
    """Return the headers that `headers_blob` wrote. Raises LineError if the row is damaged."""
    with reading(memory=True):
        return [
            (str(name), None if value is None else str(value))
            for name, value in orjson.loads(blob or b"[]")
        ]


def _rank(header: tuple[str, bytes | None]) -> bool:
    return not header[0].startswith(OURS)


def _row(group: str, suspect: RejectedRecord) -> dict[str, object]:
    """Return the row of a rejected record.

    If its headers or reason make a library fail, the record is stored without headers.
    """
    try:
        with contained():
            return _whole_row(group, suspect)
    except Exception as error:  # noqa: BLE001 - a record not stored would be read for ever
        return _whole_row(
            group,
            replace(
                suspect, headers=(), reason=one_line(f"its headers cannot be kept: {told(error)}")
            ),
        )


def error_class(disposition: str) -> str:
    """Return the error class under which a quarantined record is shown."""
    return disposition.upper()


def _whole_row(group: str, suspect: RejectedRecord) -> dict[str, object]:
    value, digest = suspect.value, None
    if value is not None and len(value) > KEPT_BYTES:
        value, digest = value[:BEGINNING_BYTES], hashlib.blake2b(value, digest_size=16).digest()
    return {
        "group_name": group,
        "topic_id": suspect.topic_id,
        "topic": suspect.topic,
        "part": suspect.partition,
        "record_offset": suspect.offset,
        "record_key": suspect.key and suspect.key[:BEGINNING_BYTES],
        "record_value": value,
        "value_digest": digest,
        "headers": headers_blob(suspect.headers),
        "disposition": suspect.disposition,
        "fingerprint": fingerprint(error_class(suspect.disposition), suspect.reason),
        "error_text": _utf8(suspect.reason)[:2000],
    }


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
