"""The first calls of deliveries, which are reserved before the tasks are claimed."""

from collections.abc import Iterable

from docllm.agent.execution.quota_gate import QuotaGate
from docllm.agent.execution.type_limits import TypeLimits
from docllm.agent.handlers.calls.permits import FREE_PERMITS, CallPermits
from docllm.agent.inflight.delivery import Delivery, DeliveryState


class ReservedCalls:
    """The reserved calls of one agent, within the limits of accounts, tenants and types."""

    def __init__(self, *, quotas: QuotaGate, types: TypeLimits) -> None:
        self._quotas = quotas
        self._types = types
        self._permits: dict[Delivery, CallPermits] = {}  # without those of calls outside all limits

    def reserve(self, delivery: Delivery) -> bool:
        """Reserve the first call of a delivery; return whether it may be claimed."""
        is_plain = delivery.task_type in self._types.plain
        if not is_plain and self._types.full(delivery):
            return False
        permits = self._quotas.reserve_first_call(delivery, delivery.route)
        if permits is None:
            return False
        if permits is not FREE_PERMITS:
            self._permits[delivery] = permits
        if not is_plain:
            self._types.enter(delivery)
        return True

    def take(self, delivery: Delivery) -> CallPermits | None:
        """Return the permits of an attempt that begins; None if its first call may not begin.

        A call that was not reserved before is reserved here.
        """
        reserved = self._permits.pop(delivery, None) if self._permits else None
        return reserved or self._quotas.reserve_first_call(delivery, delivery.route)

    def release(self, deliveries: Iterable[Delivery]) -> None:
        """Give back the calls of deliveries whose attempts have not begun."""
        for delivery in deliveries:
            if delivery in self._permits:
                self._permits.pop(delivery).close()
            if delivery.state is not DeliveryState.RUNNING:
                self._types.leave(delivery)
