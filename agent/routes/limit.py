"""Limits the running calls of a route by the calls that the provider refuses. Pure.

Time is passed in. A provider does not state its rate limit, so the limit is found by trial
(`ConcurrencyLevel`). A level of N allows N running calls, and also N calls per answer time: a
refused call occupies its place for as long as an answer takes. Otherwise each immediate refusal
would be followed by another call immediately.

The route pauses if half of an answer time's calls were refused, or most of the newest ones:

- Then one call is tried. Calls continue if it is answered, or if it outlasts a refusal while the
  provider answers other calls.
- They continue at the best known level: the calls that were running when it began, or the recent
  rate of successful calls; after a long pause, at half of the former level. A rate that lasted for
  a minute before the pause exceeds no limit per minute, so calls then soon reach it again.
- After a stop, slow start begins with one call. Each success lets twice as many run, up to the
  slots, or until a share is refused.
"""

from collections import deque
from collections.abc import Sized
from enum import Enum
from itertools import takewhile
from math import ceil, inf

from docllm.agent.routes.answer_times import AnswerTimes
from docllm.agent.routes.level import GROWTH, ConcurrencyLevel

MAX_PAUSE_S = 2.0
MAX_SPACING_S = 5.0  # longest time between two calls at the lowest level
MIN_PAUSE_S = 0.25
# If the trial is refused too, and the provider asks for a long wait, calls are tried less often.
ASKED_LONG_S, MAX_LONG_PAUSE_S = 240.0, 60.0
# A burst of refusals: at least BURST calls (or BURST_PART of the level) were refused, while at most
# BURST_CALLS times as many calls began. The number grows with the level, because several tasks
# start at once.
BURST, BURST_PART, BURST_CALLS = 6, 1 / 8, 1.6
KEPT = 1024  # how many starts, and how many refusals, are remembered
# Calls may start slightly faster than the level's rate, so that early answers leave no slot idle.
PACE = 1.03
BURST_S = 0.3  # longest usual time between two starts of tasks by the claimer
# How far back the rate of successes looks. Most limits are per minute: if one is used up early,
# nothing succeeds for the rest of that minute.
MEMORY_S = 120
LATELY_S = 15
MIN_KNOWN = 3  # with so few answers, the rate is not known
NEWS_S = 60.0  # how long a pause that has ended may still keep the route closed
CAUTION = 0.95  # the share of the calls that ran at the trial, with which calls continue
UNKNOWN_GROWTH = 0.08  # the growth from a level below the known rate
STEADY_GROWTH = 1.0  # the same if that rate had lasted for STEADY_S
STEADY_S = 60.0


class _Mode(Enum):
    OPEN = "open"  # as many calls as there are slots
    RAMP = "ramp"  # after a stop: doubles with each success
    LIMITED = "limited"  # the share of refused calls decides
    TRIAL = "trial"  # paused, then one call


class ConcurrencyLimit:
    """The limit of one route. Calls that began before `from_s` do not count."""

    def __init__(self, *, slots: int, times: AnswerTimes) -> None:
        self._slots = slots
        self._times = times
        self._mode = _Mode.OPEN
        self._level = ConcurrencyLevel(calls=float(slots), times=times)
        self.from_s = -inf
        self._paused_until_s = -inf
        self._pause_s = 0.0
        # The level before the pause, and the answers a second if they had come for STEADY_S.
        self._former, self._steady = inf, 0.0
        # How many calls ran when the trial began, and when its newest call began.
        self._running_at_trial, self._trial_from_s = 0, inf
        self._answers = _Answers()
        self._answered_at_s = -inf
        self._burst = _Burst()
        self._held_until_s: deque[float] = deque()
        self._tokens = 0.0
        self._filled_at_s = -inf
        self._full_since_s = inf  # since when the level has allowed all slots

    # ---- admission

    def allowed(self, now_s: float) -> int | None:
        """Return how many calls may run; None if only the slots limit them."""
        if self._mode is _Mode.TRIAL and self._is_trial_accepted(now_s):
            self._leave_pause(now_s)
        match self._mode:
            case _Mode.OPEN:
                return None
            case _Mode.TRIAL:
                return 0 if now_s < self._paused_until_s else 1
        return ceil(self._level.calls)

    def places_kept(self, now_s: float) -> int:
        """Return how many places refused calls keep."""
        self._drop_places(now_s)
        return len(self._held_until_s) if self._mode is _Mode.LIMITED else 0

    def _drop_places(self, now_s: float) -> None:
        while self._held_until_s and self._held_until_s[0] <= now_s:
            self._held_until_s.popleft()

    def at_once(self, now_s: float) -> float:
        """Return how many calls may begin now by the rate.

        If the loop was busy for long, as many may begin as would have begun meanwhile.
        """
        if self._mode is not _Mode.LIMITED:
            return inf
        rate = PACE * self._level.calls / self._times.usual_s
        passed_s = now_s - self._filled_at_s
        if passed_s > 0:
            most = 1 + rate * max(BURST_S, min(passed_s, self._times.usual_s))
            self._tokens = min(most, self._tokens + rate * passed_s)
            self._filled_at_s = now_s
        return self._tokens

    def note_began(self, now_s: float, running: Sized) -> None:
        """Record the start of a call while `running` other calls run, whenever those began."""
        if self._mode is _Mode.TRIAL:
            self._running_at_trial, self._trial_from_s = len(running), now_s
            return
        if self._mode is _Mode.LIMITED:
            self._tokens = self.at_once(now_s) - 1
        self._burst.note_began(now_s)
        self._level.note_began(now_s)

    # ---- what is learned

    def note_answered(self, began_s: float, now_s: float) -> None:
        """Learn that a call was answered."""
        self._answers.add(now_s)
        self._answered_at_s = now_s
        if began_s < self.from_s:
            return
        if self._mode is _Mode.TRIAL:
            self._leave_pause(now_s)
            return
        if self._mode is _Mode.RAMP:
            self._ramp()
        spared = 2 * GROWTH if self._mode is _Mode.RAMP else 0.0
        if self._level.note_answered(began_s, now_s, spared):
            self._fit_mode(now_s)

    def note_refused(self, began_s: float, now_s: float, pause_s: float, running: int) -> None:
        """Record a refused call while `running` others run; it does not matter when those began.

        If this makes the route pause, it pauses for `pause_s`.
        """
        if began_s < self.from_s:
            return
        if self._mode is _Mode.TRIAL:
            longest_s = MAX_LONG_PAUSE_S if pause_s >= ASKED_LONG_S else MAX_PAUSE_S
            self.pause(now_s, max(pause_s, 2 * self._pause_s), longest_s)
            return
        taken = running + self.places_kept(now_s) if self._mode is _Mode.LIMITED else inf
        has_changed = self._level.note_refused(began_s, now_s, self._spared, taken)
        self._drop_places(now_s)
        self._held_until_s.append(began_s + self._times.usual_s)
        if self._level.mostly_refused or self._burst.note_refused(began_s, self._level.calls):
            self.pause(now_s, pause_s)
        elif has_changed:
            self._fit_mode(now_s)

    def restart(self, now_s: float) -> None:
        """Begin again with one call: the route has stopped, or takes calls again."""
        self._paused_until_s = -inf
        self.from_s = now_s
        self._set(1.0, now_s, growth=0.0)
        self._mode = _Mode.RAMP if self._slots > 1 else _Mode.OPEN

    def _ramp(self) -> None:
        self._level.calls = min(float(self._slots), self._level.calls * 2)
        if self._level.calls == self._slots:
            self._mode = _Mode.OPEN

    def pause(self, now_s: float, pause_s: float, longest_s: float = MAX_PAUSE_S) -> None:
        """Let nothing begin for a while, and then one call."""
        if self._mode is not _Mode.TRIAL:
            self._former = inf if self._mode is _Mode.RAMP else self._level.calls
            self._steady = self._answers.steady(now_s)
        self._mode = _Mode.TRIAL
        self._running_at_trial, self._trial_from_s = 0, inf
        self.from_s = now_s
        self._pause_s = min(longest_s, max(MIN_PAUSE_S, pause_s))
        self._paused_until_s = now_s + self._pause_s

    def _is_trial_accepted(self, now_s: float) -> bool:
        """Return whether the call of the trial runs for longer than refusals take.

        That says something only of a provider that has answered other calls since the pause began.
        """
        patience_s = max(MIN_PAUSE_S, self._level.patience_s)
        return self._answered_at_s > self.from_s and now_s > self._trial_from_s + patience_s

    def _leave_pause(self, now_s: float) -> None:
        """Continue after a trial at the best known level; restart slowly if none is known."""
        rate = max(self._steady, self._answers.rate(now_s) or 0.0) or None
        if rate is None and self._former < inf:
            self._limited(self._former / 2, now_s, UNKNOWN_GROWTH)
        elif rate is None:
            self.restart(now_s)
            self._ramp()
        else:
            known = rate * self._times.usual_s
            level = max(CAUTION * self._running_at_trial, min(known, self._former / 2))
            below = STEADY_GROWTH if self._steady else UNKNOWN_GROWTH
            self._limited(level, now_s, GROWTH if level >= known else below)

    def _limited(self, level: float, now_s: float, growth: float) -> None:
        self._mode = _Mode.LIMITED
        self._tokens, self._filled_at_s = 1.0, now_s
        self._set(level, now_s, growth)
        self._fit_mode(now_s)

    def _set(self, level: float, now_s: float, growth: float) -> None:
        self._level.restart_at(level, now_s, growth)
        self._burst.clear()
        self._held_until_s.clear()

    @property
    def _spared(self) -> float:
        """The tolerated share of refused calls: during a ramp, calls double quickly."""
        return 2 * GROWTH if self._mode is _Mode.RAMP else 0.0

    def _fit_mode(self, now_s: float) -> None:
        """Keep the level within its bounds, and switch to the mode that fits it.

        The level allows at least a call every five seconds, or one call at a time if answers take
        longer than that.
        """
        least = min(1.0, self._times.usual_s / MAX_SPACING_S)
        self._level.calls = max(least, self._level.calls)
        if self._level.calls >= self._slots:
            self._level.calls = float(self._slots)
            self._full_since_s = min(self._full_since_s, now_s)
            # Until the slots can be filled, calls begin at the level's rate, not all at once.
            is_filled = now_s - self._full_since_s >= self._times.usual_s
            if is_filled or self._mode is not _Mode.LIMITED:
                self._mode = _Mode.OPEN
                self._level.stay()
            return
        self._full_since_s = inf
        if self._mode is not _Mode.LIMITED:
            self._mode = _Mode.LIMITED
            self._tokens, self._filled_at_s = 1.0, now_s

    # ---- what others see

    def closed(self, now_s: float) -> bool:
        """Return whether at most one call may begin: in a pause, and until the answer after it.

        A pause that ended a minute ago no longer counts, because then no task waits for the route.
        """
        return self._mode is _Mode.TRIAL and now_s < self._paused_until_s + NEWS_S

    def closed_for_s(self, now_s: float) -> float:
        """Return for how long no call may begin."""
        return max(0.0, self._paused_until_s - now_s) if self._mode is _Mode.TRIAL else 0.0


class _Burst:
    """Whether most of the newest calls were refused, in the order in which they began."""

    def __init__(self) -> None:
        self._starts_s: deque[float] = deque(maxlen=KEPT)
        self._refused_at_s: deque[float] = deque(maxlen=KEPT)

    def note_began(self, now_s: float) -> None:
        """Note a call."""
        self._starts_s.append(now_s)

    def note_refused(self, began_s: float, level: float) -> bool:
        """Note a refused call; return whether most calls around it were refused."""
        self._refused_at_s.append(began_s)
        least = max(BURST, min(KEPT // 2, ceil(BURST_PART * level)))
        if len(self._refused_at_s) < least:
            return False
        since_s = self._refused_at_s[-least]
        since = takewhile(lambda at_s: at_s >= since_s, reversed(self._starts_s))
        return sum(at_s <= began_s for at_s in since) <= BURST_CALLS * least

    def clear(self) -> None:
        """Forget everything."""
        self._starts_s.clear()
        self._refused_at_s.clear()


class _Answers:
    """How many calls were answered in each second of the last two minutes."""

    def __init__(self) -> None:
        self._seconds: deque[list[int]] = deque()  # each second with its answers

    def add(self, now_s: float) -> None:
        """Count an answer."""
        second = int(now_s)
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1][1] += 1
        else:
            self._seconds.append([second, 1])
            self._forget(now_s)

    def rate(self, now_s: float) -> float | None:
        """Return the answers per second, lately or in two minutes; None if they are too few."""
        self._forget(now_s)
        if sum(number for _, number in self._seconds) <= MIN_KNOWN:
            return None
        return max(self._since(now_s - MEMORY_S, now_s), self._since(now_s - LATELY_S, now_s))

    def steady(self, now_s: float) -> float:
        """Return the answers per second of the last STEADY_S; 0 if they began later."""
        from_s = now_s - STEADY_S
        began = bool(self._seconds) and self._seconds[0][0] < from_s
        return self._since(from_s, now_s) if began else 0.0

    def _since(self, from_s: float, now_s: float) -> float:
        seconds = [second for second in self._seconds if second[0] >= from_s]
        count = sum(number for _, number in seconds)
        return count / max(1.0, now_s - seconds[0][0]) if count > MIN_KNOWN else 0.0

    def _forget(self, now_s: float) -> None:
        while self._seconds and self._seconds[0][0] < now_s - MEMORY_S:
            self._seconds.popleft()
