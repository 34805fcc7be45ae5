"""Limits the running calls of a route by the share of calls that the provider refuses. Pure.

Time is passed in. A provider's rate limiter does not say its rate, so the limit searches for it. In
each answer time, the limit falls by half of the share of refused calls and grows by 3 %, a little
faster while nothing is refused. It settles where about one call in twenty is refused. A limit of N
calls also means N calls for each answer time, so that calls which are refused at once are not
followed by others at once.

The route pauses only if half of an answer time's calls were refused. Then one call is tried, and
after its answer, calls go on at the rate at which they succeeded lately. After a stop, slow start
begins with one call. Each success lets twice as many run, up to the slots, or until a share is
refused.
"""

from collections import deque
from enum import Enum
from math import ceil, inf

from agent.routes.answer_times import Times

LONGEST_PAUSE_S = 5.0
SHORTEST_PAUSE_S = 0.25
GROWTH = 0.03  # in each answer time, times the answer times without a refusal
MOST_CLEAN = 3
# After a minute without a refusal there is another limit, or none, so the search takes large steps.
FORGET_S = 60.0
AGAIN = 2.0
# However few calls an answer time has, a limit without refusals grows by this factor in this time.
SLOW_GROWTH = 1.25
SLOW_S = 5.0
LEAST_CALLS = 10  # fewer say nothing of a share
# Above the rate that the limit means, so that answers which come early leave no slot idle.
PACE = 1.25
BURST_S = 0.3  # the loop looks for tasks so seldom at least
# Most limits are per minute, and where that is used up at once nothing succeeds for the rest of it.
MEMORY_S = 120
LEAST_KNOWN = 3
NEWS_S = 60.0


class _Mode(Enum):
    OPEN = "open"  # as many calls as there are slots
    RAMP = "ramp"  # after a stop: doubles with each success
    LIMITED = "limited"  # the share of refused calls decides
    TRIAL = "trial"  # paused, then one call


class Limit:
    """The limit of one route. Calls that began before `from_s` do not count."""

    def __init__(self, *, slots: int, times: Times) -> None:
        self._slots = slots
        self._times = times
        self._mode = _Mode.OPEN
        self._limit = float(slots)
        self.from_s = -inf
        self._paused_until_s = -inf
        self._pause_s = 0.0
        self._paused_at = 0.0  # the limit in force before the pause
        self._passed = _Passed()
        self._round = _Round()
        self._clean = 0
        self._refused_s = -inf
        self._tokens = 0.0
        self._filled_s = -inf

    # ---- admission

    def allowed(self, now_s: float) -> int | None:
        """Return how many calls may run; None if only the slots limit them."""
        match self._mode:
            case _Mode.OPEN:
                return None
            case _Mode.TRIAL:
                return 0 if now_s < self._paused_until_s else 1
        return ceil(self._limit)

    def at_once(self, now_s: float) -> float:
        """Return how many calls may begin now by the rate."""
        if self._mode is not _Mode.LIMITED:
            return inf
        rate = PACE * self._limit / self._times.usual_s
        self._tokens = min(
            1 + BURST_S * rate, self._tokens + rate * max(0.0, now_s - self._filled_s)
        )
        self._filled_s = now_s
        return self._tokens

    def began(self, now_s: float) -> None:
        """Note that a call begins."""
        if self._mode is _Mode.LIMITED:
            self._tokens = self.at_once(now_s) - 1

    # ---- what is learned

    def answered(self, began_s: float, now_s: float, running: int) -> None:
        """Learn that a call was answered; `running` is how many calls that count still run."""
        self._passed.add(now_s)
        if began_s < self.from_s:
            return
        if self._mode is _Mode.TRIAL:
            self._go_on(now_s)
            return
        if self._mode is _Mode.RAMP:
            self._ramp()
        self._count(now_s, running, refused=False)

    def refused(self, began_s: float, now_s: float, running: int, pause_s: float) -> None:
        """Learn that a call was refused; the route waits `pause_s` if it must pause for it."""
        if began_s < self.from_s:
            return
        self._refused_s = now_s
        if self._mode is _Mode.TRIAL:
            self.pause(now_s, max(pause_s, 2 * self._pause_s))
        elif self._count(now_s, running, refused=True):
            self.pause(now_s, pause_s)

    def restart(self, now_s: float) -> None:
        """Begin again with one call: the route has stopped, or takes calls again."""
        self._paused_until_s = -inf
        self.from_s = now_s
        self._limit = 1.0
        self._round = _Round()
        self._mode = _Mode.RAMP if self._slots > 1 else _Mode.OPEN

    def _ramp(self) -> None:
        self._limit = min(float(self._slots), self._limit * 2)
        if self._limit == self._slots:
            self._mode = _Mode.OPEN

    def pause(self, now_s: float, pause_s: float) -> None:
        """Let nothing begin for a while, and then one call."""
        self._paused_at = self._limit if self._mode is _Mode.LIMITED else 0.0
        self._mode = _Mode.TRIAL
        self.from_s = now_s
        self._pause_s = min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, pause_s))
        self._paused_until_s = now_s + self._pause_s

    def _go_on(self, now_s: float) -> None:
        """Go on after the trial's answer at the recent rate; if it is unknown, as after a stop."""
        rate = self._passed.rate(now_s)
        self._clean = 0
        if rate is None:
            self.restart(now_s)
            self._ramp()
        else:
            self._mode = _Mode.LIMITED
            self._set(max(rate * self._times.usual_s, self._paused_at / 2), now_s)

    def _count(self, now_s: float, running: int, *, refused: bool) -> bool:
        """Count a call that ended; return whether half of this round's calls were refused."""
        round_ = self._round
        round_.began_s = min(round_.began_s, now_s)
        round_.ended += 1
        round_.refused += refused
        if round_.refused * 2 >= max(LEAST_CALLS, round_.ended + running):
            return True
        lasted_s = now_s - round_.began_s
        enough = round_.ended >= running and (round_.ended >= LEAST_CALLS or lasted_s >= SLOW_S)
        if enough and lasted_s >= self._times.usual_s:
            self._adjust(round_.refused / round_.ended, now_s)
        return False

    def _adjust(self, share: float, now_s: float) -> None:
        """Adjust the limit to the share of refused calls of a round."""
        if self._mode is _Mode.RAMP:
            if share <= 2 * GROWTH:
                self._round = _Round()
                return
            self._mode = _Mode.LIMITED
        self._clean = 0 if share else min(MOST_CLEAN, self._clean + 1)
        growth = 1 + GROWTH * max(1, self._clean) if now_s - self._refused_s <= FORGET_S else AGAIN
        if not share:
            lasted_s = now_s - self._round.began_s
            growth = max(growth, min(AGAIN, SLOW_GROWTH ** (lasted_s / SLOW_S)))
        self._set(self._limit * growth * (1 - share / 2), now_s)

    def _set(self, limit: float, now_s: float) -> None:
        """Set another limit, and begin a new round.

        The limit allows at least a call every five seconds, or one call at a time if answers take
        longer than that.
        """
        if self._mode is not _Mode.LIMITED:
            self._tokens, self._filled_s = 1.0, now_s
        self._limit = max(limit, min(1.0, self._times.usual_s / LONGEST_PAUSE_S))
        self._round = _Round()
        if self._limit >= self._slots:
            self._limit, self._mode = float(self._slots), _Mode.OPEN
        elif self._mode is _Mode.OPEN:
            self._mode = _Mode.LIMITED

    # ---- what others see

    def closed(self, now_s: float) -> bool:
        """Return whether at most one call may begin: in a pause, and until the answer after it.

        A pause that has been over for a minute without a refusal no longer counts: nobody waits for
        the route.
        """
        return self._mode is _Mode.TRIAL and now_s < self._paused_until_s + NEWS_S

    def closed_for_s(self, now_s: float) -> float:
        """Return for how long no call may begin."""
        return max(0.0, self._paused_until_s - now_s) if self._mode is _Mode.TRIAL else 0.0


class _Round:
    """A round: the calls that ended in about one answer time."""

    def __init__(self) -> None:
        self.began_s = inf
        self.ended = self.refused = 0


class _Passed:
    """How many calls were answered in each second of the last two minutes."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, int]] = deque()

    def add(self, now_s: float) -> None:
        """Count an answer."""
        second = int(now_s)
        is_counted = self._seconds and self._seconds[-1][0] == second
        self._seconds.append((second, 1 + (self._seconds.pop()[1] if is_counted else 0)))
        self._forget(now_s)

    def rate(self, now_s: float) -> float | None:
        """Return the answers per second; None if there were too few to tell."""
        self._forget(now_s)
        count = sum(number for _, number in self._seconds)
        return count / max(1.0, now_s - self._seconds[0][0]) if count > LEAST_KNOWN else None

    def _forget(self, now_s: float) -> None:
        while self._seconds and self._seconds[0][0] < now_s - MEMORY_S:
            self._seconds.popleft()
