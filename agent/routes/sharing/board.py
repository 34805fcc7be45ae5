"""What the agents of a group tell each other about a route, and what one of them makes of it. Pure; it travels by a `Board`.

The board has one state per route for all: stopped or not, with a generation that rises at each change. An agent stops with the
others, and goes with them; one that fails alone stops alone. While all have stopped together, one at a time has the turn to probe.
An agent that waits for the turn for three intervals, in which nobody took it, probes alone: the
board carries advice only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from agent.routes.route import Route

TURN_S = 5.0  # an agent that died with the turn holds up the others for so long; it is renewed while a probe runs
USED_S = 60.0
PATIENCE = 3  # intervals without a turn
_HEARSAY = " (as other agents saw)"


class Stance(StrEnum):
    """Where an agent stands, beside what it knows of all."""

    GOES = "goes"  # it takes calls, as all do
    STOPPED = "stopped"  # it stopped by what it saw itself
    JOINED = "joined"  # it stopped, as all have
    WELL = "well"  # it takes calls since it had an answer; all have stopped


class ProbeTurn(StrEnum):
    """What an agent wishes about the turn to probe."""

    NONE = "none"
    WANT = "want"
    KEEP = "keep"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class RouteReport:
    """What one agent tells of one route.

    `ok` and `failed`: outcomes since its last report. `generation`: the newest that it knows. `parked`, `reason`, `retry_s` (until its
    next probe): of its own stop. `interval_s`: how long after a probe the next one may start.
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
    """What the board answers. `retry_s`: until the next probe of all; `turn`: whether it is this agent's."""

    generation: int
    stopped: bool
    parked: bool
    reason: str
    retry_s: float
    turn: bool


class BoardAwayError(Exception):
    """The board does not answer; the text says why, and holds no secret."""


class Board(Protocol):
    """Where the agents of a group meet. All durations are measured by its own clock."""

    async def sync(self, reports: Sequence[RouteReport]) -> list[BoardState]:
        """Tell and hear, in the order of the reports; raise BoardAwayError when that is not possible within two seconds."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class Peer:
    """One agent's side of one route. `generation` and `stopped` are those of all, as they were last heard."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self._generation = 0
        self._stopped = False
        self._holds = False
        self._heard = False
        self._probes_before: int | None = (
            None  # started when the turn was asked for; None: it was not
        )
        self._waits_from_s: float | None = None  # for the turn; None: it had it, or needs none
        self._retry_s = 0.0
        self._alone_from: int | None = None  # probes started when it lost its patience

    @property
    def joined(self) -> bool:
        """Return whether this agent has stopped as all have."""
        return self._stopped and self.route.stopped

    def worth_telling(self, now_s: float) -> bool:
        """Return whether anybody has to do with this route; once at the least, since others may have stopped."""
        return (
            not self._heard
            or self._stopped
            or self.route.stopped
            or now_s - self.route.used_s <= USED_S
        )

    def report(self, now_s: float) -> RouteReport:
        """Return what there is to tell; counts are told once."""
        route, probes = self.route, self.route.probes
        ok, failed = route.take_counts()
        turn = self._turn(now_s)
        self._probes_before = (
            probes.started
            if turn in {ProbeTurn.WANT, ProbeTurn.KEEP} and not probes.running
            else None
        )
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
        return (
            ProbeTurn.KEEP
            if self.joined and probes.wanted(now_s) and probes.has_turn(now_s)
            else ProbeTurn.LEAVE
        )

    def hear(self, said: BoardState, sent_s: float, now_s: float) -> None:
        """Take what the board answered to a report that was sent at `sent_s`."""
        self._heard = True
        news, joined = said.generation > self._generation, self.joined
        self._generation, self._stopped, self._holds = said.generation, said.stopped, said.turn
        if said.stopped and news and not self.route.stopped:
            self.route.stop(now_s, said.reason + _HEARSAY, parked=said.parked)
        elif joined and not said.stopped:
            self.route.go(now_s)
        self._share_probes(said, sent_s, now_s)

    def _share_probes(self, said: BoardState, sent_s: float, now_s: float) -> None:
        """A turn that was used since it was asked for is not taken again."""
        probes = self.route.probes
        if not self.joined:
            self._waits_from_s = self._alone_from = None
            probes.free()
        elif said.turn and self._probes_before == probes.started:
            self._waits_from_s = self._alone_from = None
            probes.granted(now_s, sent_s + TURN_S)
        elif not self._impatient(said, now_s):
            probes.refused(now_s + said.retry_s)
        self._retry_s = said.retry_s

    def _impatient(self, said: BoardState, now_s: float) -> bool:
        """Let this agent probe alone once if nobody has taken the turn for long; return whether it may."""
        probes = self.route.probes
        if self._alone_from == probes.started:
            return True
        self._alone_from = None
        if self._waits_from_s is None or said.retry_s > self._retry_s or probes.running:
            self._waits_from_s = now_s  # somebody has just taken it, or this agent probes
        if now_s - self._waits_from_s < PATIENCE * probes.following_interval_s:
            return False
        self._waits_from_s, self._alone_from = now_s, probes.started
        probes.free(now_s)
        return True

    def alone(self) -> None:
        """Go on without the board: what this agent sees itself is all that counts."""
        self._holds = False
        self.route.probes.free()

    def waits_s(self, now_s: float) -> float | None:
        """Return how long it is until the turn is worth asking for; None when nobody wants it."""
        probes = self.route.probes
        wants = self.joined and not probes.running and not self._holds and probes.wanted(now_s)
        return max(0.0, probes.next_s - now_s) if wants else None


_STANCES = {
    (False, False): Stance.GOES,
    (False, True): Stance.STOPPED,
    (True, True): Stance.JOINED,
    (True, False): Stance.WELL,
}
