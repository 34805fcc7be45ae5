"""Schedules the probes of a stopped route: when one starts and how long it may take. Pure.

Time is passed in. One probe runs at a time; it is the next ready task. A fixed cheap prompt is sent
next in three cases: a task has failed as a probe twice, ten tasks have failed, or a task ended
without a call. In the first two cases the tasks may be at fault; in the third, nothing was learned,
and more such tasks may wait. The prompt shows whether the provider or the tasks are at fault: if it
succeeds, later failures of tasks count.
"""

from collections.abc import Callable

from docllm.agent.routes.answer_times import AnswerTimes

# The interval between two probes: the first, its growth, the longest, and how much it varies.
FIRST_S = 2.0
GROWTH = 1.5
MAX_S = 4.0
JITTER = 0.1
# The time limit of a probe: a hanging probe must end long before a normal call's limit, but an
# answer of usual speed must fit. So it is USUAL times the slowest recent answer.
MIN_LIMIT_S = 2.0
USUAL = 4.0
MAX_TASKS = 10
# If no task waits for the route, a cheap prompt would be paid for nothing.
WANTED_S = 2.0
_ALWAYS = float("inf")
_NEVER = float("-inf")


class ProbeSchedule:
    """The probes of one route.

    `timeout_s` is the longest that a call may take on the route. `park_s` is the interval between
    probes while the route is parked.
    """

    def __init__(
        self, *, times: AnswerTimes, timeout_s: float, park_s: float, jitter: Callable[[], float]
    ) -> None:
        self.next_at_s = 0.0
        self._interval_s = FIRST_S
        self.running = False
        self.started = 0
        self._times = times
        self.timeout_s = timeout_s
        self._park_s = park_s
        self._jitter = jitter
        self._longest_s, self._spread = MAX_S, JITTER
        self._prompt_next = False
        self._granted_until_s = _ALWAYS
        self._wanted_at_s = _NEVER
        self.failed: set[int] = set()  # tasks that failed as probes since the last prompt

    # ---- pace

    def begin(self, now_s: float, *, parked: bool) -> None:
        """Schedule the first probe: the route has just stopped."""
        pace = (self._park_s, self._park_s, 0.0) if parked else (FIRST_S, MAX_S, JITTER)
        self._interval_s, self._longest_s, self._spread = pace
        self.running = self._prompt_next = False
        self._wait(now_s)

    def start(self, now_s: float) -> float:
        """Note that a probe starts; return how long it may take.

        Intervals run from start to start.
        """
        self.running = True
        self.started += 1
        if self._granted_until_s != _ALWAYS:
            self._granted_until_s = _NEVER
        self._interval_s = self.following_interval_s
        self._wait(now_s)
        return self.limit_s

    @property
    def limit_s(self) -> float:
        """How long a probe may take."""
        if not self._times.known:
            return self.timeout_s
        return min(self.timeout_s, max(MIN_LIMIT_S, USUAL * self._times.slowest_s))

    @property
    def following_interval_s(self) -> float:
        """The interval between the next probe and the one after it."""
        return min(self._longest_s, self._interval_s * GROWTH)

    def end(self) -> None:
        """Note that the probe has ended."""
        self.running = False

    def _wait(self, now_s: float) -> None:
        varied_s = self._interval_s * (1 + self._spread * (2 * self._jitter() - 1))
        self.next_at_s = now_s + min(self._longest_s, varied_s)

    # ---- whose turn it is

    def task_due(self, now_s: float) -> bool:
        """Return whether a task may start now as a probe; the call shows that a task waits."""
        self._wanted_at_s = now_s
        return self._due(now_s) and not self._prompt_next

    def prompt_due(self, now_s: float) -> bool:
        """Return whether the cheap prompt must be sent now."""
        return self._due(now_s) and self._prompt_next and self.wanted(now_s)

    def wanted(self, now_s: float) -> bool:
        """Return whether a task waits for the route."""
        return now_s - self._wanted_at_s <= WANTED_S

    def _due(self, now_s: float) -> bool:
        return not self.running and self.next_at_s <= now_s < self._granted_until_s

    # ---- sharing: one of the agents that stopped together has the turn to probe

    def note_turn(self, now_s: float, until_s: float) -> None:
        """Take the turn: one probe before `until_s`. An expired turn is not renewed."""
        if not self.running:
            self.next_at_s, self._granted_until_s = min(self.next_at_s, now_s), until_s

    def wait_for_turn(self, next_at_s: float) -> None:
        """Wait for a turn until `next_at_s`: another agent has it, or it is too early."""
        if not self.running:
            self.next_at_s, self._granted_until_s = next_at_s, _NEVER

    def probe_without_turn(self, from_s: float | None = None) -> None:
        """Let this agent probe without a turn, because it is alone with its route.

        If `from_s` is given, it may probe from then on.
        """
        self._granted_until_s = _ALWAYS
        if from_s is not None:
            self.next_at_s = min(self.next_at_s, from_s)

    def has_turn(self, now_s: float) -> bool:
        """Return whether a turn was given and is neither used nor over."""
        return now_s < self._granted_until_s < _ALWAYS

    # ---- what probes and other calls showed

    def note_failure(self, task_id: int | None) -> None:
        """Learn that a probe failed: a task, or the prompt (None), after which tasks go next."""
        has_failed_before = task_id in self.failed
        if task_id is not None:
            self.failed.add(task_id)
        self._prompt_next = has_failed_before or len(self.failed) >= MAX_TASKS
        if self._prompt_next:
            self.failed.clear()

    def note_no_evidence(self, task_id: int | None) -> None:
        """Learn that a probe ended without a call.

        The prompt goes next, unless the probe was the prompt (None).
        """
        self._prompt_next = task_id is not None

    def note_success(self, task_id: int | None) -> None:
        """Learn that the provider answered a task, or the prompt (None).

        An answer to the prompt says nothing about tasks.
        """
        if task_id is not None:
            self.failed.clear()
