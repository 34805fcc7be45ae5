"""What waits and what is taken, each time when an agent takes tasks to claim."""

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from docllm.agent.dispatch.claimer import ReadySelection
from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.quota.agent_quota import AgentQuota
from docllm.agent.quota.grants import LimitKind
from tests.invariants.turns import Kind, Taking
from tests.simulation.bugs.bug import patched
from tests.simulation.eventloop import PROCESS

if TYPE_CHECKING:
    from tests.simulation.world import World

Take = Callable[[ReadySelection, int], list[Delivery]]
# After so long without a task, a tenant with a cap must have got a seat, if Redis is well.
IDLE_S = 10.0


class TurnWatch:
    """Records what the agents of a run take. It looks at deliveries, not at the ready queue."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.takings: list[Taking] = []
        self._ahead: defaultdict[str, list[Kind]] = defaultdict(list)  # by program
        self._selections: dict[str, ReadySelection] = {}
        self._busy_s: dict[str, float] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record all that is taken meanwhile."""
        with (
            patched(ReadySelection, "take", self._watched(ReadySelection.take)),
            patched(ReadySelection, "take_ahead", self._watched_ahead(ReadySelection.take_ahead)),
        ):
            yield

    def _watched_ahead(self, take: Take) -> Take:
        @functools.wraps(take)
        def watched(selection: ReadySelection, limit: int) -> list[Delivery]:
            taken = take(selection, limit)
            if (process := PROCESS.get()) is not None:
                self._ahead[process.name] += map(_kind, taken)
            return taken

        return watched

    def _watched(self, take: Take) -> Take:
        @functools.wraps(take)
        def watched(selection: ReadySelection, limit: int) -> list[Delivery]:
            process = PROCESS.get()
            if limit <= 0 or process is None:
                return take(selection, limit)
            self._selections[process.name] = selection
            kinds = {_kind(delivery) for delivery in _ready(selection)}
            waiting = self._waiting(selection, kinds) if kinds else frozenset()
            taken = take(selection, limit)
            of_home = (
                _kind(delivery) for delivery in taken if delivery.route == delivery.own_route
            )
            now_s = self._world.loop.time()
            ahead = frozenset(self._ahead.pop(process.name, ()))
            self.takings.append(Taking(process.name, now_s, waiting, tuple(of_home), ahead))
            return taken

        return watched

    def _waiting(self, selection: ReadySelection, kinds: set[Kind]) -> frozenset[Kind]:
        """Return the kinds of tasks that may be taken now, by the rules of routes and tenants."""
        routes, tenants = {kind.route for kind in kinds}, {kind.tenant for kind in kinds}
        open_routes = {route for route in routes if selection._admission.room_for(route) > 0}
        usable = {tenant for tenant in tenants if self._may_take(selection, tenant)}
        return frozenset(
            kind for kind in kinds if kind.route in open_routes and kind.tenant in usable
        )

    def _may_take(self, selection: ReadySelection, tenant: str) -> bool:
        """Return whether a tenant has a seat in this agent, or must have got one by now."""
        now_s = self._world.loop.time()
        holder = _holder(selection, tenant)
        if holder is None or holder.room(now_s) > 0:
            return True
        programs = {agent.name for agent in self._world.agents if agent.running}
        cap = self._world.plan.tenants[tenant].in_flight or 0
        if len(programs) > cap:
            return False  # the agents have the seats in turn, each for a moment
        holders = (
            _holder(selection, tenant)
            for name, selection in self._selections.items()
            if name in programs
        )
        if any(holder is not None and holder.running for holder in holders):
            self._busy_s[tenant] = now_s
        since_s = self._busy_s.setdefault(tenant, now_s)
        return self._world.redis_is_well and now_s - max(since_s, self._since_s) > IDLE_S

    @property
    def _since_s(self) -> float:
        """Return when an agent last began or ended: seats of others are free a while later."""
        agents = self._world.agents
        return max((max(agent.began_s, agent.ended_s or 0.0) for agent in agents), default=math.inf)


def _ready(selection: ReadySelection) -> list[Delivery]:
    """Return the ready deliveries, except those of types whose slots are all in use."""
    return [
        delivery
        for delivery in selection._table._by_task.values()
        if delivery.state is DeliveryState.READY
        and not delivery.suspect
        and not selection._admission.is_type_full(delivery)
    ]


def _kind(delivery: Delivery) -> Kind:
    return Kind(delivery.lane.word, delivery.own_route, delivery.tenant)


def _holder(selection: ReadySelection, tenant: str) -> AgentQuota | None:
    quotas = selection._admission.quotas.quotas
    return quotas._shared((LimitKind.TENANT, tenant))
