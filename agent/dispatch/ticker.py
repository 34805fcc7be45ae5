"""Runs the periodic work of dispatch: shelving, pauses, relief, and moves to a tier."""

from docllm.agent.dispatch.backpressure import Backpressure
from docllm.agent.dispatch.claimer import Claimer, Purpose
from docllm.agent.dispatch.head_of_line import HeadOfLine
from docllm.agent.dispatch.record_finisher import Wakeups
from docllm.agent.dispatch.route_shelving import RouteShelving
from docllm.agent.inflight.delivery import DeliveryState
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.lease import Leases
from docllm.agent.ports import Clock

TICK_S = 0.25


class Ticker:
    """Looks after the waiting deliveries of one agent at each tick."""

    def __init__(
        self,
        *,
        shelving: RouteShelving,
        backpressure: Backpressure,
        relief: HeadOfLine,
        claimer: Claimer,
        partitions: Partitions,
        table: InFlightTable,
        leases: Leases,
        wakeups: Wakeups,
        clock: Clock,
        limits: InFlightLimits,
    ) -> None:
        self._shelving = shelving
        self._backpressure = backpressure
        self._relief = relief
        self._claimer = claimer
        self._partitions = partitions
        self._table = table
        self._leases = leases
        self._wakeups = wakeups
        self._clock = clock
        self._limits = limits

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            await self._clock.sleep(TICK_S)
            self._shelving.update(self._clock.now_s(), full=self._backpressure.full)
            self._backpressure.update()
            self._wakeups.set()
            self._claimer.end_overdue()
            await self._relief.relieve(self._clock.now_s())
            await self._move_closed_routes()

    async def _move_closed_routes(self) -> None:
        """Send some tasks of a route that stays closed to a tier, so that others can be read."""
        stuck = {
            delivery.route
            for delivery in self._partitions.blocking(self._limits.stuck_share)
            if delivery.state is DeliveryState.READY
        }
        for route in self._shelving.routes_to_move(self._clock.now_s(), stuck):
            if self._leases.current.may_claim(self._clock.now_s()) and (
                deliveries := self._table.take_ready_for(route, self._limits.move_page)
            ):
                await self._claimer.claim(deliveries, Purpose.MOVE)
