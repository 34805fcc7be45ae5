"""Reads the bodies of claimed deliveries that came, or waited, without a body."""

from collections.abc import Iterable

from docllm.agent.inflight.decoder import RecordDecoder
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.ports import Ledger
from docllm.schemas.task.record.envelope import digest


class BodyLoader:
    """Completes claimed deliveries with their bodies from the ledger."""

    def __init__(self, *, ledger: Ledger, table: InFlightTable, decoder: RecordDecoder) -> None:
        self._ledger = ledger
        self._table = table
        self._decoder = decoder

    async def fetch(self, claimed: Iterable[Delivery], *, moving: bool = False) -> set[Delivery]:
        """Load the missing bodies of these deliveries; return the deliveries to claim again.

        A delivery must be claimed again if its body names another route than assumed. A pointer
        record has no body, so the default route was assumed. With `moving`, the deliveries are
        moved to a tier; then only deliveries whose route is unknown need a body.
        """
        missing = (
            delivery
            for delivery in claimed
            if delivery.value is None and delivery.kept_answer is None
        )
        without_body = {
            delivery.task_id: delivery
            for delivery in missing
            if delivery.digest is None or not moving
        }
        bodies = await self._ledger.bodies(sorted(without_body)) if without_body else {}
        return {
            without_body[task_id]
            for task_id, (key, value) in bodies.items()
            if self._complete(without_body[task_id], key, value)
        }

    def _complete(self, delivery: Delivery, key: bytes, value: bytes) -> bool:
        self._table.load_body(delivery, value)
        before = delivery.route
        if delivery.digest is None:
            seen = self._decoder.preview(value)
            delivery.digest, delivery.plan = digest(key, value), seen.plan
            delivery.route = seen.route
            delivery.size = seen.size
            delivery.tenant = delivery.publication.tenant or seen.tenant
        elif delivery.plan.refusal:  # the settings may have gained its route while it waited
            delivery.plan = self._decoder.preview(value).plan
        return delivery.route != before
