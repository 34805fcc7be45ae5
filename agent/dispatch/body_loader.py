"""Reads the bodies of claimed deliveries, the only time that a body is read before its attempt.

Until then a delivery's plan follows the hints in its record's headers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from docllm.agent.inflight.delivery import Delivery
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.ports import Ledger
from docllm.agent.routes import RouteNames
from docllm.agent.routes.names import preview, routes_allowed
from docllm.schemas.task.line.overrides import overridden
from docllm.schemas.task.record.envelope import digest
from docllm.schemas.task.record.hints import hints_of, read_body


@dataclass(kw_only=True, eq=False)
class BodyLoader:
    """Reads bodies, whose digests the claim has compared; loads missing ones from the ledger."""

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
