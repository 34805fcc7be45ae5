"""The duty that keeps one agent's routes in step with those of the other agents.

It runs about twice a second. No call ever waits for it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from docllm.agent.ports import Clock
from docllm.agent.quota.grants import RedisAwayError
from docllm.agent.routes.router import Router
from docllm.agent.routes.sharing.board import Board, Peer
from docllm.schemas.runtime.outage import Outage

# Between two exchanges: usually, at least, and while the board is away.
PAUSE_S = 0.5
MIN_S = 0.05
AWAY_S = 2.0


@dataclass(slots=True, kw_only=True, eq=False)
class BoardSync:
    """Exchanges reports and answers with the board.

    Without the board, each agent goes on alone. That is logged once when it begins, and once when
    it ends.
    """

    routes: Router
    board: Board
    clock: Clock
    jitter: Callable[[], float]
    _peers: dict[str, Peer] = field(default_factory=dict, init=False)
    _redis: Outage = field(init=False)

    def __post_init__(self) -> None:
        self._redis = Outage(
            name="Redis",
            clock=self.clock,
            patience_s=0,
            hope="this agent watches its routes alone until Redis answers",
        )

    async def run(self) -> None:
        """Exchange reports and answers until cancelled."""
        while True:
            await self.sync()
            await self.clock.sleep(self._pause_s())

    async def sync(self) -> None:
        """Exchange reports and answers once."""
        sent_at_s = self.clock.now_s()
        peers = [peer for peer in self._known_peers() if peer.has_news(sent_at_s)]
        reports = [peer.report(sent_at_s) for peer in peers]
        if not reports:
            return
        try:
            answers = await self.board.sync(reports)
        except RedisAwayError as error:
            self._go_on_alone(error)
            return
        self._redis.answered()
        for peer, state in zip(peers, answers, strict=True):
            peer.apply_state(state, sent_at_s, self.clock.now_s())

    def _known_peers(self) -> list[Peer]:
        """Return a peer for each route that is known now."""
        former = self._peers
        self._peers = {
            route.name: former[route.name]
            if route.name in former and former[route.name].route is route
            else Peer(route)
            for route in self.routes
        }
        return list(self._peers.values())

    def _go_on_alone(self, error: RedisAwayError) -> None:
        self._redis.failed(error)
        for peer in self._peers.values():
            peer.leave_board()

    def _pause_s(self) -> float:
        """Return the time until the next exchange.

        It is about half a second, less if the turn to probe is free sooner, and more while the
        board is unreachable.
        """
        now_s = self.clock.now_s()
        waits = [
            wait_s for peer in self._peers.values() if (wait_s := peer.waits_s(now_s)) is not None
        ]
        pause_s = (AWAY_S if self._redis.logged else PAUSE_S) * (0.8 + 0.4 * self.jitter())
        return max(MIN_S, min(pause_s, *waits)) if waits and not self._redis.logged else pause_s
