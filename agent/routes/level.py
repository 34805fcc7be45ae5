"""Finds how many calls a provider takes at once, by the share that it refuses. Pure.

Time is passed in. A round lasts about one answer time. Its end moves the level:

- A round with refusals lowers the level by half of the refused share.
- A round without refusals raises it by 3 %, the next such round by twice as much, or three times
  if answers are slow, and so on.
- After a round without refusals, the next rounds may be shorter than an answer. Then the level
  grows faster than the number of running calls, and the first refusal resets it to that number.
- If the refused share stays the same although the level falls, no limit causes the refusals: the
  server refuses calls at random. This share is then expected; only refusals beyond it count.

So the level stays near a limit, and rises quickly once the limit is gone.
"""

from collections import deque
from math import inf, sqrt

from docllm.agent.routes.answer_times import AnswerTimes

GROWTH = 0.03
MAX_GROWTH = 0.45
# A round lasts until it has MIN_CALLS calls, but at most SLOW_S.
MIN_CALLS = 15
MIN_EARLY_CALLS = 10  # of a round that is over before its calls are answered
# By which factor the growth increases in each round without refusals. With slow answers there are
# fewer calls in a second, and so fewer rounds.
FASTER, SLOW_FASTER = 2.0, 3.0
SHORT_S = 0.8  # shortest round after a round without refusals
# After fast growth, a refusal with fewer running calls than this share of the level resets it.
REACHED = 0.85
SLOW_S = 5.0
MIN_TOLD = 10  # fewer calls are too few to judge a share
SLOW_GROWTH = 0.25
# A call that is not refused within this multiple of the usual refusal time counts as accepted.
PATIENCE = 1.5
# If after CUTS cuts in a row the refused share has not fallen below STAYED of its start, the
# refusals count as random, unless the share is above MAX_CHANCE.
CUTS = 6
STAYED = 0.6
MAX_CHANCE = 0.25
FADE = 0.2  # the part of the difference by which a smaller refused share lowers the expected one
UNUSUAL = 2.0  # standard deviations above the expected refusals from which on the level falls
# A round shows that more calls are possible if it began this share of the calls that the level
# allows. FORGET_S after the last refusal, the level grows without that.
USED = 0.7
FORGET_S = 60.0


class ConcurrencyLevel:
    """The number of calls that may run at once; it may be a fraction."""

    def __init__(self, *, calls: float, times: AnswerTimes) -> None:
        self.calls = calls
        self._times = times
        self._growth = GROWTH
        # How much each answer adds to the level, until it reaches the goal.
        self._goal, self._step = calls, 0.0
        self._chance = 0.0
        self._cuts: list[float] = []  # the shares for which the level was lowered in a row
        self._former = calls  # before these cuts
        self._refusal_s = 0.0  # how long refusals take
        self._refused_at_s = -inf  # when the last one came
        self._from_s = -inf  # calls that began before this are ignored
        self._rounds: deque[_Round] = deque()

    def restart_at(self, calls: float, now_s: float, growth: float = GROWTH) -> None:
        """Set the level and restart with this growth; with 0, the level can only fall."""
        self.calls = self._goal = calls
        self._growth = growth
        self._cuts.clear()
        self._begin_anew(now_s)

    def stay(self) -> None:
        """Let no answer raise the level before the next round without refusals."""
        self._goal = self.calls

    def note_began(self, now_s: float) -> None:
        """Count a call that begins."""
        if not self._rounds or self._rounds[-1].ended_s < inf:
            self._rounds.append(_Round(now_s))
        self._rounds[-1].started += 1

    def note_answered(self, began_s: float, now_s: float, spared: float = 0.0) -> bool:
        """Count an answered call; return whether the level has changed.

        A share of refused calls that is at most `spared` does not lower the level.
        """
        if (round_ := self._round_of(began_s)) is not None:
            round_.answered += 1
        former = self.calls
        if former < self._goal:
            self.calls = min(self._goal, former + self._step)
        self._decide(now_s, spared)
        return self.calls != former

    def note_refused(
        self, began_s: float, now_s: float, spared: float = 0.0, running: float = inf
    ) -> bool:
        """Count a refused call, as `note_answered` does.

        `running` is how many others take a place.
        """
        if began_s < self._from_s:
            return False
        self._refused_at_s = now_s
        self._refusal_s = max(0.9 * self._refusal_s, now_s - began_s)
        round_ = self._round_of(began_s)
        if round_ is None:  # the refusal came so late that its round has been judged already
            self.note_began(now_s)
            round_ = self._rounds[-1]
        round_.refused += 1
        former = self.calls
        if self._runs_ahead(running):
            self.restart_at(float(running), now_s)
            return True
        if not self._chance:
            self._goal = former
        self._decide(now_s, spared)
        return self.calls != former

    def _runs_ahead(self, running: float) -> bool:
        """Return whether the level grew so fast that far fewer calls run."""
        is_growing = not self._chance and self._growth > 2 * GROWTH
        return is_growing and MIN_CALLS <= running < REACHED * self.calls

    @property
    def mostly_refused(self) -> bool:
        """Whether half of an answer time's calls were refused."""
        refused = sum(round_.refused for round_ in self._rounds)
        started = sum(round_.started for round_ in self._rounds)
        usual = self.calls * self._round_s / self._times.usual_s
        return refused * 2 >= max(MIN_TOLD, started, usual)

    @property
    def patience_s(self) -> float:
        """How long after its start a call that was not refused counts as accepted."""
        return PATIENCE * self._refusal_s

    @property
    def _round_s(self) -> float:
        """How long a round lasts at least."""
        return self._times.usual_s if self._growth <= GROWTH else self._early_round_s

    @property
    def _early_round_s(self) -> float:
        """How long a round after a round without refusals lasts at least."""
        return min(self._times.usual_s, max(SHORT_S, self.patience_s))

    @property
    def _are_answers_slow(self) -> bool:
        """Whether such a round is over before its calls are answered."""
        return self._early_round_s < self._times.usual_s

    def _round_of(self, began_s: float) -> "_Round | None":
        for round_ in reversed(self._rounds):
            if round_.began_s <= began_s <= round_.ended_s:
                return round_
        return None

    def _decide(self, now_s: float, spared: float) -> None:
        """End the newest round if it is over; judge the oldest once its calls are decided."""
        if not self._rounds:
            return
        newest, oldest = self._rounds[-1], self._rounds[0]
        if newest.ended_s == inf and self._is_over(newest, now_s):
            newest.ended_s = now_s
        if now_s < oldest.ended_s:
            return
        if oldest.decided or now_s >= oldest.ended_s + self.patience_s:
            self._rounds.popleft()
            self._adjust(oldest, now_s, spared)

    def _is_over(self, newest: "_Round", now_s: float) -> bool:
        """Return whether the newest round has lasted long enough and has enough calls."""
        lasted_s = now_s - newest.began_s
        if lasted_s < SHORT_S and lasted_s < self._times.usual_s:
            return False  # no round is that short
        is_early = self._growth > GROWTH and self._are_answers_slow
        least = MIN_EARLY_CALLS if is_early else MIN_CALLS
        return lasted_s >= self._round_s and (newest.started >= least or lasted_s >= SLOW_S)

    def _adjust(self, judged: "_Round", now_s: float, spared: float) -> None:
        expected = max(spared, self._chance) * judged.started
        if judged.refused > expected + UNUSUAL * sqrt(self._chance * judged.started):
            self._cut(judged.share)
            self._begin_anew(now_s)
        else:
            self._cuts.clear()
            self._chance += FADE * min(0.0, judged.share - self._chance)
            self._grow(judged)

    def _cut(self, share: float) -> None:
        if not self._cuts:
            self._former = self.calls
        self._cuts.append(share)
        self.calls *= 1 - (share - self._chance) / 2
        self._goal, self._growth = self.calls, GROWTH
        if len(self._cuts) == CUTS:
            half = CUTS // 2
            before, after = sum(self._cuts[:half]) / half, sum(self._cuts[half:]) / half
            if STAYED * before <= after <= MAX_CHANCE:
                self._chance, self.calls = after, self._former
            self._cuts.clear()

    def _grow(self, judged: "_Round") -> None:
        """Raise the level if it was used, or long after the last refusal.

        A round that did not use the whole level does not show whether more calls are possible.
        """
        lasted_s = judged.ended_s - judged.began_s
        is_used = judged.started >= USED * self.calls * lasted_s / self._times.usual_s
        if not is_used and judged.ended_s - self._refused_at_s < FORGET_S:
            return
        is_small = self._growth and judged.started < MIN_CALLS
        growth = max(SLOW_GROWTH, 2 * self._growth) if is_small else self._growth
        self._goal = self.calls * (1 + growth)
        self._step = self.calls * growth / judged.started
        factor = SLOW_FASTER if self._are_answers_slow else FASTER
        self._growth = min(MAX_GROWTH, factor * self._growth)

    def _begin_anew(self, now_s: float) -> None:
        self._from_s = now_s
        self._rounds.clear()


class _Round:
    """The calls that began in about one answer time."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.ended_s = inf
        self.started = self.answered = self.refused = 0

    @property
    def decided(self) -> bool:
        """Whether all of its calls have ended."""
        return self.answered + self.refused >= self.started

    @property
    def share(self) -> float:
        """The share of refused calls."""
        return self.refused / self.started
