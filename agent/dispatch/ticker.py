"""Runs the periodic work of dispatch: shelving, pauses, relief, and moves to a tier."""

from dataclasses import dataclass

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


@dataclass(kw_only=True, eq=False)
class Ticker:
    """Looks after the waiting deliveries of one agent at each tick."""

    shelving: RouteShelving
    backpressure: Backpressure
    relief: HeadOfLine
    claimer: Claimer
    partitions: Partitions
    table: InFlightTable
    leases: Leases
    wakeups: Wakeups
    clock: Clock
    limits: InFlightLimits

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            await self.clock.sleep(TICK_S)
            self.shelving.update(self.clock.now_s(), full=self.backpressure.full)
            self.backpressure.update()
            self.wakeups.set()
            self.claimer.end_overdue()
            await self.relief.relieve(self.clock.now_s())
            await self._move_closed_routes()

    async def _move_closed_routes(self) -> None:
        """Send some tasks of a route that stays closed to a tier, so that others can be read."""
        stuck = {
            delivery.route
            for delivery in self.partitions.blocking(self.limits.stuck_share)
            if delivery.state is DeliveryState.READY
        }
        for route in self.shelving.routes_to_move(self.clock.now_s(), stuck):
            if self.leases.current.may_claim(self.clock.now_s()) and (
                deliveries := self.table.take_ready_for(route, self.limits.move_page)
            ):
                await self.claimer.claim(deliveries, Purpose.MOVE)
