"""Quarantines records that name no trustworthy task.

The row and the order for its dead letter are written in one transaction. No record may fail
permanently here: values are cut to the maximum size, and a repeated record is only counted.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import orjson
from sqlalchemy import Connection, func, select, update

from docllm.producer.ledger import outbox
from docllm.producer.ports import Item, Order
from docllm.schemas.ledger.migrations import ledger_id
from docllm.schemas.ledger.sql import insert_new
from docllm.schemas.ledger.tables import quarantine
from docllm.schemas.task.failures import Disposition
from docllm.schemas.task.line.strict_json import reading
from docllm.schemas.task.record import header_names
from docllm.schemas.task.record.envelope import (
    MAX_TASK_BYTES,
    Outgoing,
    RawHeaders,
)
from docllm.schemas.task.record.rejected_record import RejectedRecord
from docllm.schemas.text.fingerprint import fingerprint
from docllm.schemas.text.untrusted import contained, describe_error
from docllm.schemas.text.wording import one_line

KEPT_BYTES = MAX_TASK_BYTES  # the largest value that is stored whole; no task is larger
BEGINNING_BYTES = 64 << 10  # stored of a larger value, and of a key
KEPT_HEADER_BYTES = 8 << 10
KEPT_BATCH_BYTES = 1000  # the longest batch name that is stored; no name is longer
_MAX_DIGITS = 18


def count_left(connection: Connection, group: str, limit: int) -> int:
    """Return how many quarantined records of a group are no task yet; it counts up to `limit`."""
    records = (
        select(quarantine.c.id)
        .where(quarantine.c.group_name == group, quarantine.c.replayed_at.is_(None))
        .limit(limit)
        .subquery()
    )
    return connection.execute(select(func.count()).select_from(records)).scalar_one()


def keep(connection: Connection, group: str, records: Sequence[RejectedRecord]) -> list[Order]:
    """Store rejected records; return the order for the dead letters of the new ones.

    A record that is stored already is only counted once more, and so is its dead letter if another
    tool writes it back.
    """
    items = []
    for record in records:
        position = (
            quarantine.c.topic_id == record.topic_id,
            quarantine.c.topic == record.topic,
            quarantine.c.part == record.partition,
            quarantine.c.record_offset == record.offset,
        )
        stored_id = connection.execute(select(quarantine.c.id).where(*position)).scalar()
        stored_id = stored_id or _of_letter(connection, group, record)
        if stored_id is not None:
            connection.execute(
                update(quarantine)
                .where(quarantine.c.id == stored_id)
                .values(seen=quarantine.c.seen + 1)
            )
            continue
        connection.execute(insert_new(connection, quarantine), _row(group, record))
        row_id = connection.execute(select(quarantine.c.id).where(*position)).scalar_one()
        items.append(Item(outbox.QUARANTINE, row_id, 0))
    return outbox.place(connection, group, "dlq", items)


def _of_letter(connection: Connection, group: str, record: RejectedRecord) -> int | None:
    """Return the row whose dead letter this record is, if it was written back unchanged.

    The row has its letter already.
    """
    named = dict(record.headers)
    number = named.get(header_names.QUARANTINE) or b""
    if not number.isdigit() or len(number) > _MAX_DIGITS:
        return None
    if named.get(header_names.LEDGER) != ledger_id(connection).encode():
        return None
    query = select(quarantine.c.id, quarantine.c.record_value).where(
        quarantine.c.id == int(number), quarantine.c.group_name == group
    )
    row = connection.execute(query).first()
    unchanged = row is not None and record.value in {None, row.record_value}
    return row.id if row is not None and unchanged else None


def undeliverable(
    connection: Connection, group: str, item: Item, record: Outgoing, reason: str
) -> None:
    """Store a trace of an order's item that its topic refuses even as a pointer.

    There is no dead letter for it.
    """
    where = f"order:{record.topic}:{item.kind}:{item.id}:{item.fence}"
    rejected = RejectedRecord(
        "", where[:249], 0, item.id, record.key, None, record.headers, reason, Disposition.REJECTED
    )
    connection.execute(insert_new(connection, quarantine), _row(group, rejected))


def headers_blob(headers: RawHeaders) -> bytes:
    """Return headers as JSON pairs of texts, at most 8 KiB.

    Bytes that are not UTF-8 become escapes. The batch header comes first, because a replay without
    it would put the task into another batch. Of several batch headers, only the last is kept,
    because it is the valid one. Then come the other docllm headers, since they say what the record
    is, and last all others.
    """
    pairs: list[bytes] = []
    size = len("[]")
    batch_headers = (
        pair for pair in reversed(headers) if pair[0] == header_names.BATCH and pair[1]
    )
    # A record of 4 MiB may have half a million headers, so not all of them are sorted.
    beginning = islice(headers, KEPT_HEADER_BYTES)
    others = sorted((header for header in beginning if header[0] != header_names.BATCH), key=_rank)
    for name, raw in (*islice(batch_headers, 1), *others):
        value = raw[:KEPT_BATCH_BYTES] if raw and name == header_names.BATCH else raw
        pair = orjson.dumps(
            [_utf8(name), None if value is None else value.decode("utf-8", "backslashreplace")]
        )
        size += len(pair) + len(",")
        if size > KEPT_HEADER_BYTES:
            break
        pairs.append(pair)
    return b"[" + b",".join(pairs) + b"]"


def headers_of(blob: bytes | None) -> list[tuple[str, str | None]]:
    """Return the headers that `headers_blob` wrote. Raises LineError if the row is damaged."""
    with reading(memory=True):
        return [
            (str(name), None if value is None else str(value))
            for name, value in orjson.loads(blob or b"[]")
        ]


def _rank(header: tuple[str, bytes | None]) -> bool:
    return not header[0].startswith(header_names.OWN_PREFIX)


def _row(group: str, record: RejectedRecord) -> dict[str, object]:
    """Return the row of a rejected record.

    If its headers or reason make a library fail, the record is stored without headers.
    """
    try:
        with contained():
            return _full_row(group, record)
    except Exception as error:  # noqa: BLE001 - a record not stored would be read for ever
        reason = one_line(f"its headers cannot be kept: {describe_error(error)}")
        return _full_row(group, replace(record, headers=(), reason=reason))


def error_class(disposition: str) -> str:
    """Return the error class under which a quarantined record is shown."""
    return disposition.upper()


def _full_row(group: str, record: RejectedRecord) -> dict[str, object]:
    value, digest = record.value, None
    if value is not None and len(value) > KEPT_BYTES:
        value, digest = value[:BEGINNING_BYTES], hashlib.blake2b(value, digest_size=16).digest()
    return {
        "group_name": group,
        "topic_id": record.topic_id,
        "topic": record.topic,
        "part": record.partition,
        "record_offset": record.offset,
        "record_key": record.key and record.key[:BEGINNING_BYTES],
        "record_value": value,
        "value_digest": digest,
        "headers": headers_blob(record.headers),
        "disposition": record.disposition,
        "fingerprint": fingerprint(error_class(record.disposition), record.reason),
        "error_text": _utf8(record.reason)[:2000],
    }


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
