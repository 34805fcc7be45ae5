"""What a group's agents report about a route, and how each agent follows the answers. Pure.

Reports and answers travel by a `Board`. The board has one state per route for all agents: stopped
or not, with a generation that rises at each change. An agent stops with the others and restarts
with them. An agent that fails alone stops alone. While all have stopped together, one agent at a
time has the turn to probe. An agent that has waited for the turn for three intervals, in which
nobody took it, probes alone, because the board carries advice only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from docllm.agent.routes.route import Route

# Lifetime of a turn. If its agent dies, the others wait this long. A running probe renews the turn.
TURN_S = 5.0
USED_S = 60.0
PATIENCE = 3  # intervals without a turn
_HEARSAY = " (as other agents saw)"


class Stance(StrEnum):
    """An agent's own state of a route, compared with the shared state."""

    GOES = "goes"  # it takes calls, as all do
    STOPPED = "stopped"  # it stopped because of what it saw itself
    JOINED = "joined"  # it stopped, as all have
    WELL = "well"  # it takes calls although all others have stopped, because it got an answer


class ProbeTurn(StrEnum):
    """What an agent asks for about the turn to probe."""

    NONE = "none"
    WANT = "want"
    KEEP = "keep"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class RouteReport:
    """One agent's report about one route.

    `ok` and `failed` count outcomes since the agent's last report. `generation` is the newest that
    it knows. `parked`, `reason` and `retry_s` (the time until its next probe) describe its own
    stop. `interval_s` is how long after a probe the next one may start.
    """

    route: str
    ok: int
    failed: int
    generation: int
    stance: Stance
    parked: bool
    reason: str
    retry_s: float
    turn: ProbeTurn
    interval_s: float


@dataclass(frozen=True, slots=True)
class BoardState:
    """The board's answer about one route: the shared state.

    `retry_s` is the time until the next probe by any agent. `turn` says whether this agent has the
    turn.
    """

    generation: int
    stopped: bool
    parked: bool
    reason: str
    retry_s: float
    turn: bool


class Board(Protocol):
    """Where the agents of a group meet. All durations are measured by its own clock."""

    async def sync(self, reports: Sequence[RouteReport]) -> list[BoardState]:
        """Send the reports, and return the board's answers in the same order.

        Raises RedisAwayError if that is not possible within two seconds.
        """
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class Peer:
    """One agent's side of one route.

    `_generation` and `_stopped` are the shared state as the agent last heard it.
    """

    def __init__(self, route: Route) -> None:
        self.route = route
        self._generation = 0
        self._stopped = False
        self._holds = False
        self._heard = False
        # Probes started before the agent asked for the turn; None if it did not ask.
        self._probes_before: int | None = None
        # When the wait for the turn began; None if the agent has had the turn or needs none.
        self._waits_from_s: float | None = None
        self._retry_s = 0.0
        # Probes started when the agent lost its patience; None if it has not.
        self._alone_from: int | None = None

    @property
    def joined(self) -> bool:
        """Whether this agent has stopped, as all have."""
        return self._stopped and self.route.stopped

    def has_news(self, now_s: float) -> bool:
        """Return whether to report this route: it is in use, or it has stopped.

        Each route is reported at least once, because the other agents may have stopped.
        """
        return (
            not self._heard
            or self._stopped
            or self.route.stopped
            or now_s - self.route.used_at_s <= USED_S
        )

    def report(self, now_s: float) -> RouteReport:
        """Return the report to send. Each outcome is counted in one report only."""
        route, probes = self.route, self.route.probes
        ok, failed = route.take_counts()
        turn = self._turn(now_s)
        asks = turn in {ProbeTurn.WANT, ProbeTurn.KEEP} and not probes.running
        self._probes_before = probes.started if asks else None
        stance = _STANCES[self._stopped, route.stopped]
        reason, retry_s = route.reason.removesuffix(_HEARSAY), route.closed_for_s(now_s)
        return RouteReport(
            route.name,
            ok,
            failed,
            self._generation,
            stance,
            route.parked,
            reason,
            retry_s,
            turn,
            probes.following_interval_s,
        )

    def _turn(self, now_s: float) -> ProbeTurn:
        probes = self.route.probes
        if self.joined and probes.running:
            return ProbeTurn.KEEP
        if not self._holds:
            return ProbeTurn.WANT if self.joined and probes.wanted(now_s) else ProbeTurn.NONE
        keeps = self.joined and probes.wanted(now_s) and probes.has_turn(now_s)
        return ProbeTurn.KEEP if keeps else ProbeTurn.LEAVE

    def apply_state(self, state: BoardState, sent_at_s: float, now_s: float) -> None:
        """Follow the board's answer to the report that was sent at `sent_at_s`."""
        self._heard = True
        news, joined = state.generation > self._generation, self.joined
        self._generation, self._stopped, self._holds = state.generation, state.stopped, state.turn
        if state.stopped and news and not self.route.stopped:
            self.route.stop(now_s, state.reason + _HEARSAY, parked=state.parked)
        elif joined and not state.stopped:
            self.route.reopen(now_s)
        self._share_probes(state, sent_at_s, now_s)

    def _share_probes(self, state: BoardState, sent_at_s: float, now_s: float) -> None:
        """Follow the answer about the turn to probe.

        A turn is not taken if a probe has started since it was asked for.
        """
        probes = self.route.probes
        if not self.joined:
            self._waits_from_s = self._alone_from = None
            probes.probe_without_turn()
        elif state.turn and self._probes_before == probes.started:
            self._waits_from_s = self._alone_from = None
            probes.note_turn(now_s, sent_at_s + TURN_S)
        elif not self._impatient(state, now_s):
            probes.wait_for_turn(now_s + state.retry_s)
        self._retry_s = state.retry_s

    def _impatient(self, state: BoardState, now_s: float) -> bool:
        """Return whether this agent may probe alone once, because nobody took the turn for long."""
        probes = self.route.probes
        if self._alone_from == probes.started:
            return True
        self._alone_from = None
        if self._waits_from_s is None or state.retry_s > self._retry_s or probes.running:
            # Another agent has just taken the turn, or this agent is probing.
            self._waits_from_s = now_s
        if now_s - self._waits_from_s < PATIENCE * probes.following_interval_s:
            return False
        self._waits_from_s, self._alone_from = now_s, probes.started
        probes.probe_without_turn(now_s)
        return True

    def leave_board(self) -> None:
        """Go on without the board: only what this agent sees itself counts."""
        self._holds = False
        self.route.probes.probe_without_turn()

    def waits_s(self, now_s: float) -> float | None:
        """Return how long until it is worth asking for the turn; None if it is not wanted."""
        probes = self.route.probes
        needs_turn = self.joined and not probes.running and not self._holds and probes.wanted(now_s)
        return max(0.0, probes.next_at_s - now_s) if needs_turn else None


_STANCES = {
    (False, False): Stance.GOES,
    (False, True): Stance.STOPPED,
    (True, True): Stance.JOINED,
    (True, False): Stance.WELL,
}
