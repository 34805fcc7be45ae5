"""Turns records into deliveries or rejected records by their headers; once claimed, reads bodies.

Numbers from a header are read within bounds, and no code trusts them. Hints choose the queue and
the first permit. The body, whose digest the claim has compared, decides once the task is claimed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from docllm.agent.inflight.delivery import Delivery
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.ports import Ledger, Record, RejectedRecord
from docllm.agent.routes import RouteNames
from docllm.agent.routes.names import preview, routes_allowed
from docllm.schemas.task.failures import Disposition
from docllm.schemas.task.line.overrides import overridden
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
from docllm.schemas.task.record.hints import hints_of, read_body
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


@dataclass(kw_only=True, eq=False)
class BodyLoader:
    """Reads the bodies of claimed deliveries; loads missing ones from the ledger."""

    ledger: Ledger
    table: InFlightTable
    naming: RouteNames

    async def fetch(
        self,
        claimed: Iterable[Delivery],
        *,
        moving: bool = False,
        changed: Sequence[Delivery] = (),
    ) -> set[Delivery]:
        """Read the bodies of these deliveries; return the deliveries to claim again.

        A delivery must be claimed again if its body names another route than its record. With
        `moving`, the deliveries are moved to a tier; then one without a body needs it only if the
        record came without. Replays have changed what those of `changed` run with.
        """
        deliveries = [delivery for delivery in claimed if delivery.kept_answer is None]
        missing = {
            delivery.task_id: delivery
            for delivery in deliveries
            if delivery.value is None and (delivery.digest is None or not moving)
        }
        if missing:
            await self._load(missing)
        if changed and not moving:
            await self._override(changed)
        return {delivery for delivery in deliveries if self._is_rerouted(delivery)}

    async def _load(self, missing: dict[int, Delivery]) -> None:
        for task_id, (key, value) in (await self.ledger.bodies(sorted(missing))).items():
            delivery = missing[task_id]
            self.table.load_body(delivery, value)
            if delivery.digest is None:
                delivery.digest = digest(key, value)

    async def _override(self, changed: Sequence[Delivery]) -> None:
        """Give deliveries the lines with which replays let them run."""
        overrides = await self.ledger.overrides([delivery.task_id for delivery in changed])
        for delivery in changed:
            value = delivery.value
            if value is not None and delivery.task_id in overrides:
                self.table.drop_bodies(delivery)
                self.table.load_body(delivery, overridden(value, overrides[delivery.task_id]))

    def _is_rerouted(self, delivery: Delivery) -> bool:
        """Read a delivery's body; return whether it names another route than its record.

        A body that cannot be read is left to the attempt, which says what is wrong with it.
        """
        if delivery.value is None:
            return False
        delivery.line = line = read_body(delivery.value)
        if line is None:
            return False
        hints, former = hints_of(line), delivery.plan
        if hints != delivery.hints or not former.known:
            delivery.hints = hints
            delivery.plan, delivery.size = preview(hints, len(delivery.value), self.naming)
        if "routes_allowed" in line:
            delivery.plan = delivery.plan.within(routes_allowed(line))
        if delivery.plan.route == former.route:
            return False
        delivery.route = delivery.own_route
        return True


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
