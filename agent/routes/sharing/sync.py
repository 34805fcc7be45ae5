"""The duty that keeps one agent's routes in step with those of the other agents.

It runs about twice a second. No call ever waits for it.
"""

from collections.abc import Callable

from agent.ports import Clock
from agent.routes.router import Router
from agent.routes.sharing.board import Board, BoardAwayError, Peer
from schemas.runtime.outage import Outage

PAUSE_S, SHORTEST_S, AWAY_S = 0.5, 0.05, 2.0


class BoardSync:
    """Exchanges reports and answers with the board.

    Without the board, each agent goes on alone. That is logged once when it begins, and once when
    it ends.
    """

    def __init__(
        self, *, routes: Router, board: Board, clock: Clock, jitter: Callable[[], float]
    ) -> None:
        self._routes = routes
        self._board = board
        self._clock = clock
        self._jitter = jitter
        self._members: dict[str, Peer] = {}
        self._redis = Outage(
            name="Redis",
            clock=clock,
            patience_s=0,
            hope="this agent watches its routes alone until it does",
        )

    async def run(self) -> None:
        """Exchange reports and answers until cancelled."""
        while True:
            await self.sync()
            await self._clock.sleep(self._pause_s())

    async def sync(self) -> None:
        """Exchange reports and answers once."""
        sent_s = self._clock.now_s()
        members = [one for one in self._look() if one.worth_telling(sent_s)]
        reports = [one.report(sent_s) for one in members]
        if not reports:
            return
        try:
            answers = await self._board.sync(reports)
        except BoardAwayError as error:
            self._alone(error)
            return
        self._redis.answered()
        for one, said in zip(members, answers, strict=True):
            one.hear(said, sent_s, self._clock.now_s())

    def _look(self) -> list[Peer]:
        """Return a peer for each route that is known now."""
        known = self._members
        self._members = {
            route.name: known[route.name]
            if route.name in known and known[route.name].route is route
            else Peer(route)
            for route in self._routes
        }
        return list(self._members.values())

    def _alone(self, error: BoardAwayError) -> None:
        self._redis.failed(error)
        for one in self._members.values():
            one.alone()

    def _pause_s(self) -> float:
        """Return the time until the next exchange.

        That is about half a second, less if the turn to probe will be free before, and more while
        the board is away.
        """
        now_s = self._clock.now_s()
        waits = [
            wait_s for one in self._members.values() if (wait_s := one.waits_s(now_s)) is not None
        ]
        pause_s = (AWAY_S if self._redis.told else PAUSE_S) * (0.8 + 0.4 * self._jitter())
        return max(SHORTEST_S, min(pause_s, *waits)) if waits and not self._redis.told else pause_s
