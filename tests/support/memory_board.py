"""A board for tests: the rules of `agent/routes/sharing/redis_board.py` in memory.

The test moves its clock. One suite runs on this board and on Redis, so what is proved with this
board holds for Redis.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from docllm.agent.quota.grants import RedisAwayError
from docllm.agent.routes.sharing.board import (
    TURN_S,
    BoardState,
    ProbeTurn,
    RouteReport,
    Stance,
)
from docllm.agent.routes.sharing.redis_board import FRESH_S


@dataclass(slots=True)
class _Place:
    """What the board knows of one route."""

    generation: int = 0
    stopped: bool = False
    parked: bool = False
    reason: str = ""
    retry_at_s: float = 0.0
    turn: tuple[str, float] = ("", 0.0)
    seen: dict[str, tuple[float, float, int, int]] = field(default_factory=dict)

    def stop(self, report: RouteReport, now_s: float) -> None:
        self.stopped, self.parked, self.reason, self.retry_at_s = (
            True,
            report.parked,
            report.reason,
            now_s + report.retry_s,
        )


class MemoryServer:
    """Stands in for Redis: it can be away, and lose its memory."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self.away = False
        self.places: dict[str, _Place] = {}

    def flush(self) -> None:
        """Lose everything."""
        self.places.clear()

    def board(self, agent: str) -> "MemoryBoard":
        """Return the board of one agent."""
        return MemoryBoard(self, agent)


class MemoryBoard:
    """The port `Board` in memory."""

    def __init__(self, server: MemoryServer, agent: str) -> None:
        self._server = server
        self._agent = agent

    async def sync(self, reports: Sequence[RouteReport]) -> list[BoardState]:
        """Take the agent's report on each route and return what the board says of it."""
        if self._server.away:
            raise RedisAwayError("away")
        return [
            self._meet(
                self._server.places.setdefault(report.route, _Place()), report, self._server.now_s()
            )
            for report in reports
        ]

    async def close(self) -> None:
        """Do nothing."""

    def _meet(self, place: _Place, report: RouteReport, now_s: float) -> BoardState:
        outcomes = (
            (now_s, report.ok, report.failed)
            if report.ok + report.failed
            else place.seen.get(self._agent, (0, float("-inf"), 0, 0))[1:]
        )
        place.seen[self._agent] = (now_s, *outcomes)
        if report.generation > place.generation:
            place.generation, place.stopped = report.generation, False
            if report.stance is Stance.JOINED:
                place.stop(report, now_s)
        if report.stance is Stance.WELL and place.stopped and report.generation == place.generation:
            place.generation, place.stopped, place.parked, place.reason, place.turn = (
                place.generation + 1,
                False,
                False,
                "",
                ("", 0.0),
            )
        elif (
            report.stance is Stance.STOPPED and not place.stopped and self._borne_out(place, now_s)
        ):
            place.generation += 1
            place.stop(report, now_s)
        if place.stopped:
            place.retry_at_s = min(place.retry_at_s, now_s + max(report.retry_s, report.interval_s))
        if place.turn[1] > now_s + TURN_S:
            place.turn = ("", 0.0)
        turn = self._turn(place, report, now_s)
        return BoardState(
            generation=place.generation,
            stopped=place.stopped,
            parked=place.parked,
            reason=place.reason,
            retry_s=max(0.0, place.retry_at_s - now_s),
            turn=turn,
        )

    def _borne_out(self, place: _Place, now_s: float) -> bool:
        others = [
            seen
            for agent, seen in place.seen.items()
            if agent != self._agent and now_s - seen[0] <= FRESH_S
        ]
        recent = [seen for seen in others if now_s - seen[1] <= FRESH_S]
        good, bad = sum(seen[2] for seen in recent), sum(seen[3] for seen in recent)
        return not others or (bad > 0 and bad >= good)

    def _turn(self, place: _Place, report: RouteReport, now_s: float) -> bool:
        holder = place.turn[0] if now_s < place.turn[1] else ""
        has_turn = holder == self._agent
        if has_turn and (report.turn is ProbeTurn.LEAVE or not place.stopped):
            place.turn = ("", 0.0)
            return False
        if has_turn and report.turn is not ProbeTurn.NONE:
            place.turn = (self._agent, now_s + TURN_S)
        elif (
            report.turn is ProbeTurn.WANT
            and place.stopped
            and now_s >= place.retry_at_s
            and not holder
        ):
            place.turn, place.retry_at_s = (self._agent, now_s + TURN_S), now_s + report.interval_s
            return True
        return has_turn
