"""Turns the items of a publish order into records, from the ledger alone.

The records are the same whoever sends them. The value is the task as it was loaded, byte for byte;
the headers describe this publication. An item whose record would have no effect gives no record:
its task is final, or its fence is outdated. A dead letter is never left out because of its task's
state, and a result's line only if a replay has begun since.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import BindParameter, Column, Connection, Row, bindparam, func, select

from docllm.producer.ledger import task_changes
from docllm.producer.ledger.outbox import QUARANTINE, TASK
from docllm.producer.ledger.quarantine import error_class, headers_of
from docllm.producer.ports import Item, Order
from docllm.producer.tracing.publications import Headers, PublicationTraces
from docllm.schemas.ledger.migrations import ledger_id
from docllm.schemas.ledger.sql import seconds_until
from docllm.schemas.ledger.tables import (
    batch,
    dead_letter,
    quarantine,
    task,
    task_attempt,
    task_input,
)
from docllm.schemas.task.line.overrides import overridden
from docllm.schemas.task.line.parsing import DEFAULT_TENANT
from docllm.schemas.task.line.strict_json import LineError
from docllm.schemas.task.record import header_names
from docllm.schemas.task.record.envelope import (
    ENVELOPE_VERSION,
    Outgoing,
    Publication,
    encode,
    encode_each,
    text,
)
from docllm.schemas.task.record.hints import Hints, hints_of_body
from docllm.schemas.task.record.topics import RESULTS, Topics
from docllm.schemas.task.states import FINAL, Status

_EXCEPTION_PREFIX = "docllm."
_REASON: tuple[Column[Any], ...] = (
    dead_letter.c.disposition,
    dead_letter.c.error_class,
    dead_letter.c.error_text,
    dead_letter.c.fingerprint,
    dead_letter.c.origin_topic,
    dead_letter.c.origin_partition,
    dead_letter.c.origin_offset,
)
_OF_IDS: BindParameter[Any] = bindparam("ids", expanding=True)
_LAST_ATTEMPTS = select(task_attempt.c.task_id, task_attempt.c.owner).where(
    task_attempt.c.id.in_(
        select(func.max(task_attempt.c.id))
        .where(task_attempt.c.task_id.in_(_OF_IDS))
        .group_by(task_attempt.c.task_id)
    )
)
_TRACED = (
    select(
        task.c.id,
        task.c.owner,
        task.c.attempt,
        task.c.replays,
        task.c.lease_losses,
        task_input.c.headers,
    )
    .join(task_input, task_input.c.task_id == task.c.id)
    .where(task.c.id.in_(_OF_IDS))
)


def records_of(
    connection: Connection,
    topics: Topics,
    order: Order,
    utc_s: float,
    traces: PublicationTraces | None = None,
) -> dict[Item, Outgoing]:
    """Return the records of the items that are still wanted; with `traces`, each names a span.

    A record of the quarantine has no trace, since it belongs to no task; nor has a result.
    """
    if order.destination == RESULTS:
        # Most groups have no such topic.
        from docllm.producer.publishing.result_records import result_records  # noqa: PLC0415

        return result_records(connection, topics, order.items)
    records = _records(connection, topics, order, utc_s)
    if traces is not None:
        for item, headers in _trace_headers(connection, order, records, traces).items():
            records[item].headers.extend(headers)
    return records


def _records(
    connection: Connection, topics: Topics, order: Order, utc_s: float
) -> dict[Item, Outgoing]:
    ledger = ledger_id(connection)
    topic = topics.name(order.destination)
    if order.destination == "dlq":
        return _dead_letters(connection, topics, ledger, order.items) | _quarantined(
            connection, topics, ledger, order.items
        )
    rows = _tasks(connection, order.items)
    changed = [row.id for row in rows.values() if row.changed]
    overrides = task_changes.overrides(connection, changed) if changed else {}
    records = {}
    for item in order.items:
        row = rows.get(item.id)
        if row is not None and row.fence == item.fence and row.status not in FINAL:
            due_ms = int((utc_s + max(0.0, row.due_in_s)) * 1000)
            publication = replace(
                _publication(row, ledger, topics.group, due_ms),
                tenant=_named(row.tenant),
                hints=hints_of_body(
                    overridden(row.body, overrides[row.id]) if row.id in overrides else row.body
                ),
            )
            headers = encode(publication)
            # Each fence may lead to another agent: one of them may know a type that this one does
            # not.
            records[item] = Outgoing(topic, row.task_key, row.body, headers, salt=row.fence)
    return records


def _trace_headers(
    connection: Connection, order: Order, items: Iterable[Item], traces: PublicationTraces
) -> dict[Item, Headers]:
    """Return what the records of tasks say of their traces."""
    items_by_id = {item.id: item for item in items if item.kind == TASK}
    ids = {"ids": sorted(items_by_id)}
    last_owners = {row.task_id: row.owner for row in connection.execute(_LAST_ATTEMPTS, ids)}
    return {
        items_by_id[row.id]: traces.headers(
            row.id,
            order.destination,
            items_by_id[row.id][2],
            order.id,
            has_failed=bool(row.attempt or row.replays or row.lease_losses),
            # A task that was taken from a lost agent still has that agent's claim.
            last_owner=(row.owner if row.lease_losses else 0) or last_owners.get(row.id, 0),
            foreign=_traceparent(row.headers),
        )
        for row in connection.execute(_TRACED, ids)
    }


def _traceparent(packed: bytes | None) -> str:
    """Return what a foreign producer named as the span of a task's record; empty if nothing."""
    try:
        pairs = headers_of(packed)
    except LineError:
        return ""
    return next((value or "" for name, value in pairs if name == header_names.TRACEPARENT), "")


def pointer(record: Outgoing) -> Outgoing:
    """Return a replacement for a record that its topic refuses.

    It has the same key and headers, and no value; the ledger has the value.
    """
    size = len(record.value or b"")
    return Outgoing(
        record.topic,
        record.key,
        None,
        [*record.headers, (header_names.POINTER, b"%d bytes in the ledger" % size)],
        record.salt,
    )


def first_headers(
    ledger: str,
    group: str,
    batch_name: str,
    tasks: Mapping[Item, tuple[str, Hints]],
    due_ms: int,
) -> Iterator[list[tuple[str, bytes]]]:
    """Yield the headers of first publications, for a loader that has the tasks at hand.

    `tasks` has the tenant of each item's task, and its hints.
    """
    publication = Publication(ledger, group, batch_name, task_id=0, fence=0, due_ms=due_ms)
    return encode_each(
        publication,
        (
            (task_id, fence, _named(tenant), hints)
            for (_, task_id, fence), (tenant, hints) in tasks.items()
        ),
    )


def _named(tenant: str) -> str:
    """Return the tenant as a record names it."""
    return "" if tenant == DEFAULT_TENANT else tenant


def _tasks(connection: Connection, items: Sequence[Item]) -> dict[int, Row[Any]]:
    ids = sorted(item.id for item in items if item.kind == TASK)
    columns = (
        task.c.id,
        task.c.task_key,
        task.c.status,
        task.c.fence,
        task.c.attempt,
        task.c.tenant,
        task.c.changed,
        task_input.c.body,
    )
    query = (
        select(
            *columns,
            batch.c.name.label("batch_name"),
            seconds_until(task.c.due_at).label("due_in_s"),
        )
        .join(batch, batch.c.id == task.c.batch_id)
        .join(task_input, task_input.c.task_id == task.c.id)
        .where(task.c.id.in_(ids))
    )
    return {row.id: row for row in connection.execute(query)}


def _publication(row: Row[Any], ledger: str, group: str, due_ms: int = 0) -> Publication:
    return Publication(ledger, group, row.batch_name, row.id, row.fence, row.attempt, due_ms)


def _dead_letters(
    connection: Connection, topics: Topics, ledger: str, items: Sequence[Item]
) -> dict[Item, Outgoing]:
    items_by_id = {item.id: item for item in items if item.kind == TASK}
    of_task = (task.c.id, task.c.status, task.c.fence, task.c.attempt)
    query = (
        select(
            *of_task,
            task_input.c.body,
            task_input.c.raw_key,
            batch.c.name.label("batch_name"),
            *_REASON,
        )
        .join(batch, batch.c.id == task.c.batch_id)
        .join(task_input, task_input.c.task_id == task.c.id)
        .outerjoin(dead_letter, dead_letter.c.task_id == task.c.id)
        .where(task.c.id.in_(sorted(items_by_id)))
    )
    rows = connection.execute(query).all()
    return {
        items_by_id[row.id]: _dead_letter(row, topics, ledger)
        for row in rows
        if _is_dead_of(row, items_by_id[row.id])
    }


def _is_dead_of(row: Row[Any], item: Item) -> bool:
    """Return whether the task is still dead under the item's fence.

    If it is not, no dead letter is missing: a replay waits until the dead letter is on its topic.
    """
    return bool(row.status == Status.DEAD and row.fence == item.fence)


def _dead_letter(row: Row[Any], topics: Topics, ledger: str) -> Outgoing:
    values = dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's name for a row as a mapping
    publication = replace(
        _publication(row, ledger, topics.group),
        origin=_origin(values),
        error_class=row.error_class or "",
        error=row.error_text or "",
    )
    return Outgoing(
        topics.name("dlq"),
        row.raw_key,
        row.body,
        encode(publication) + _reason_headers(values, topics.group, row.attempt),
    )


def _origin(values: Mapping[str, Any]) -> str:
    if not values["origin_topic"]:
        return ""
    return f"{values['origin_topic']}/{values['origin_partition']}/{values['origin_offset']}"


def _reason_headers(
    values: Mapping[str, Any], group: str, attempts: int
) -> list[tuple[str, bytes]]:
    """Return the disposition, and the headers that existing tools read.

    These are Spring's text headers and those of KIP-1191.
    """
    headers = {
        header_names.DISPOSITION: values["disposition"],
        header_names.FINGERPRINT: values["fingerprint"].hex() if values["fingerprint"] else "",
        header_names.SPRING_TOPIC: values["origin_topic"],
        header_names.SPRING_CLASS: _EXCEPTION_PREFIX + values["error_class"]
        if values["error_class"]
        else "",
        header_names.SPRING_MESSAGE: values["error_text"],
        header_names.SPRING_GROUP: group,
        header_names.KIP_TOPIC: values["origin_topic"],
        header_names.KIP_PARTITION: values["origin_partition"],
        header_names.KIP_OFFSET: values["origin_offset"],
        header_names.KIP_GROUP: group,
        header_names.KIP_DELIVERIES: attempts,
        header_names.KIP_MESSAGE: values["error_text"],
    }
    return _text_headers(headers)


def _quarantined(
    connection: Connection, topics: Topics, ledger: str, items: Sequence[Item]
) -> dict[Item, Outgoing]:
    items_by_id = {item.id: item for item in items if item.kind == QUARANTINE}
    if not items_by_id:
        return {}
    origin = (
        quarantine.c.topic.label("origin_topic"),
        quarantine.c.part.label("origin_partition"),
        quarantine.c.record_offset.label("origin_offset"),
    )
    query = select(quarantine, *origin).where(quarantine.c.id.in_(sorted(items_by_id)))
    return {
        items_by_id[row.id]: _quarantined_letter(row, topics, ledger)
        for row in connection.execute(query).all()
    }


def _quarantined_letter(row: Any, topics: Topics, ledger: str) -> Outgoing:
    values = {**row._mapping}  # noqa: SLF001 - SQLAlchemy's name for a row as a mapping
    values["error_class"] = error_class(row.disposition)
    docllm_headers = {
        header_names.VERSION: ENVELOPE_VERSION,
        header_names.LEDGER: ledger,
        header_names.GROUP: topics.group,
        header_names.QUARANTINE: row.id,
        header_names.ORIGIN: _origin(values),
        header_names.ERROR_CLASS: values["error_class"],
        header_names.ERROR: row.error_text,
        header_names.VALUE_DIGEST: row.value_digest.hex() if row.value_digest else "",
    }
    value = None if row.value_digest else row.record_value
    headers = (
        _batch_headers(row.headers)
        + _text_headers(docllm_headers)
        + _reason_headers(values, topics.group, 1)
    )
    return Outgoing(topics.name("dlq"), row.record_key, value, headers)


def _batch_headers(packed: bytes | None) -> list[tuple[str, bytes]]:
    """Return the header of a quarantined record that names its batch, unchanged.

    A record that is loaded back belongs to that batch, or is refused as before.
    """
    try:
        pairs = headers_of(packed)
    except LineError:
        pairs = [(header_names.BAD_NAMES, "")]
    batch_headers = {
        name: value
        for name, value in pairs
        if name == header_names.BAD_NAMES or (name == header_names.BATCH and value)
    }
    return [(name, (value or "").encode()) for name, value in batch_headers.items()]


def _text_headers(values: Mapping[str, object]) -> list[tuple[str, bytes]]:
    return [
        (name, text(str(value), 1000)) for name, value in values.items() if value not in {None, ""}
    ]
