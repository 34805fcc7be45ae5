"""Turns records into deliveries or rejected records, by their headers; no body is read here.

Numbers from a header are read within bounds, and no code trusts them. Hints choose the queue and
the first permit; `BodyLoader` compares them with the body once the task is claimed.
"""

from dataclasses import dataclass

from docllm.agent.inflight.delivery import Delivery
from docllm.agent.ports import Record, RejectedRecord
from docllm.agent.routes import RouteNames
from docllm.agent.routes.names import preview
from docllm.schemas.task.failures import Disposition
from docllm.schemas.task.line.parsing import DEFAULT_TENANT
from docllm.schemas.task.record import header_names
from docllm.schemas.task.record.envelope import (
    MAX_KEY_BYTES,
    MAX_TASK_BYTES,
    NotOursError,
    decode,
    digest,
    is_letter,
)
from docllm.schemas.text.untrusted import contained, describe_error
from docllm.schemas.text.wording import one_line


@dataclass(kw_only=True, eq=False)
class RecordDecoder:
    """Reads the records of one ledger and group, and rejects all others."""

    ledger_id: str
    group: str
    naming: RouteNames

    def read(self, record: Record) -> Delivery | RejectedRecord:
        """Return a record's delivery, or a rejected record.

        A record is rejected if it cannot be read, or is not a publication of this ledger for this
        group.
        """
        try:
            with contained():
                return self._read(record)
        except NotOursError as error:
            return rejected_record(record, f"not a publication of docllm: {error}")
        except Exception as error:  # noqa: BLE001 - it concerns this record alone
            return rejected_record(record, one_line(f"cannot be read: {describe_error(error)}"))

    def _read(self, record: Record) -> Delivery | RejectedRecord:
        publication = decode(record.headers)
        if publication.ledger != self.ledger_id or publication.group != self.group:
            return rejected_record(
                record,
                f"belongs to ledger {publication.ledger}, group {publication.group}",
                Disposition.REJECTED,
            )
        if is_letter(record.headers):
            return letter_record(record)
        if len(record.key or b"") > MAX_KEY_BYTES:
            return rejected_record(
                record,
                f"has a key of {len(record.key or b'')} bytes, "
                f"a task's has at most {MAX_KEY_BYTES}",
            )
        if record.value is not None and len(record.value) > MAX_TASK_BYTES:
            return rejected_record(
                record, f"has {len(record.value)} bytes, a task has at most {MAX_TASK_BYTES}"
            )
        record_digest = None if record.value is None else digest(record.key or b"", record.value)
        plan, size = preview(publication.hints, len(record.value or b""), self.naming)
        return Delivery(
            record.partition,
            record.offset,
            record.timestamp_ms,
            publication,
            record.value,
            record_digest,
            plan.route,
            key=record.key,
            plan=plan,
            size=size,
            tenant=publication.tenant or DEFAULT_TENANT,
        )


def rejected_record(
    record: Record, reason: str, disposition: Disposition = Disposition.UNDECODABLE
) -> RejectedRecord:
    """Return a record as a rejected record for the quarantine."""
    partition = record.partition
    return RejectedRecord(
        partition.topic_id,
        partition.topic,
        partition.number,
        record.offset,
        record.key,
        record.value,
        record.headers,
        reason,
        disposition,
    )


def letter_record(record: Record) -> RejectedRecord:
    """Return the record of a dead letter that was written back.

    It is rejected if no task of the ledger has that letter.
    """
    return rejected_record(
        record, "is a dead letter, but of no task that the ledger has", Disposition.REJECTED
    )


def distrusted(delivery: Delivery, reason: str) -> RejectedRecord:
    """Return a delivery that the ledger does not know as a rejected record."""
    partition, publication = delivery.partition, delivery.publication
    values = {
        header_names.TASK: publication.task_id,
        header_names.FENCE: publication.fence,
        header_names.BATCH: publication.batch,
    }
    headers = [(name, str(value).encode()) for name, value in values.items()]
    return RejectedRecord(
        partition.topic_id,
        partition.topic,
        partition.number,
        delivery.offset,
        delivery.key,
        delivery.value,
        headers,
        reason,
        Disposition.REJECTED,
    )
