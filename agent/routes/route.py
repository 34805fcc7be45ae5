"""One route: its breaker, its limit, and what a failure on it means for the task. Pure.

A route stops if the provider fails, and is parked if a person must act. If calls are refused, the
route takes fewer calls, or pauses. Calls that began before the last change of state are ignored.
Once the route has stopped, an attempt that fails because of the outage is not counted.

A refusal as for a wrong key may be about one document. So the cheap prompt is sent at once: if it
is refused too, the route is parked; if it is answered, the task is refused alone.

A task is at fault itself if it fails again with the provider's error although others were answered
since it failed before. Then its failures count for the task and say nothing about the route.
"""

import logging
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf

from docllm.agent.judge import Effect
from docllm.agent.ports.outcome import Dead, Outcome, Retry, Snooze
from docllm.agent.routes.answer_times import AnswerTimes
from docllm.agent.routes.circuit import Circuit, run_for
from docllm.agent.routes.evidence import (
    ANSWERED,
    FaultyTasks,
    KeyQuestion,
    RouteEvidence,
    by_outcome,
)
from docllm.agent.routes.limit import ConcurrencyLimit
from docllm.agent.routes.probe_schedule import ProbeSchedule
from docllm.schemas.agent_report import Reason, RouteFacts
from docllm.schemas.codes import Code
from docllm.schemas.settings.config import Trigger
from docllm.schemas.task.failures import Disposition, ErrorClass
from docllm.schemas.task.route_state import RouteState

log = logging.getLogger(__name__)

# This many MONEY or AUTH failures in a row park a route. A single failure may be a task that names
# a wrong model. If the route has answered since its last change, a firewall may cause a few
# failures in a row, so then the longer run of `run_for` is required.
LOCKED_RUN = 3
MIN_SNOOZE_S = 1.0
QUESTION_S = 30.0  # how long the prompt may take that shows whether the key is at fault
# Calls that run for less are not reported as hanging, even if answers are usually fast.
HUNG_S = 30.0
_CLASSES: frozenset[str] = frozenset(ErrorClass)
PAY = "pay, or raise the limit, then run"
CORRECT = (
    "correct its key, model or address in the settings file, which agents read again by "
    "themselves; if you corrected it in the environment, restart them; if at the provider, run"
)


@dataclass(slots=True, eq=False)
class RouteCall:
    """A call that a route has let pass: one attempt's, or a cheap prompt. It is never changed.

    `limit_s` is how long a probe may take; None if it is no probe. `task_id` is None for the cheap
    prompt.
    """

    route: str
    generation: int
    began_s: float
    limit_s: float | None = None
    task_id: int | None = None


class Route:
    """One model at one provider account. `generation` rises at each stop and each restart."""

    def __init__(
        self,
        *,
        name: str,
        group: str,
        slots: int,
        timeout_s: float,
        park_s: float,
        jitter: Callable[[], float],
    ) -> None:
        self.name = name
        self.state = RouteState.OPEN
        self.reason = ""
        self.changed_at_s = self.used_at_s = float("-inf")
        self.generation = 0
        self._times = AnswerTimes()
        self.probes = ProbeSchedule(
            times=self._times, timeout_s=timeout_s, park_s=park_s, jitter=jitter
        )
        self._group = group
        self._longest_run = run_for(slots)
        self._circuit = Circuit(run=self._longest_run, changed=self._circuit_changed)
        self._limit = ConcurrencyLimit(slots=slots, times=self._times)
        self._faulty = FaultyTasks()
        self._locked = 0
        self._question = KeyQuestion()
        # The start time of the newest call that got a usable answer.
        self._answered_from_s = float("-inf")
        self._running: dict[RouteCall, None] = {}  # calls for tasks, the oldest first
        self._prompts = 0  # running cheap prompts, of any generation; they take no slot
        self._now_s = 0.0
        self._ok = self._bad = 0  # outcomes that other agents have not heard of

    @property
    def stopped(self) -> bool:
        """Whether the route takes no calls but probes."""
        return self.state is not RouteState.OPEN

    @property
    def parked(self) -> bool:
        """Whether the route is stopped until a person acts."""
        return self.state is RouteState.PARKED

    # ---- admission

    def room(self, now_s: float, running: int, slots: int) -> int:
        """Return how many calls may be started now.

        `running` is how many calls of this route run or are about to.
        """
        if self.stopped:
            free = 1 if self.probes.task_due(now_s) else 0
        elif self._waits_for_prompt:
            free = 0
        elif (allowed := self._limit.allowed(now_s)) is None:
            free = slots
        else:
            free = int(min(allowed - self._places_taken(now_s), self._limit.at_once(now_s))) - (
                running - len(self._running)
            )
        return max(0, min(free, slots - running))

    def is_free(self, now_s: float) -> bool:
        """Return whether nothing but slots limits the calls."""
        is_open = self.state is RouteState.OPEN and not self._waits_for_prompt
        return is_open and self._limit.allowed(now_s) is None

    @property
    def usual_s(self) -> float:
        """How long an answer usually takes; infinity before the first."""
        return self._times.usual_s if self._times.known else inf

    def _places_taken(self, now_s: float) -> int:
        """Return how many running calls count for the limit.

        Calls that began before its last pause do not count, nor do calls that seem to hang. A
        refused call counts for a while.
        """
        from_s = max(self._limit.from_s, now_s - self._times.long_s)
        count = self._limit.places_kept(now_s)
        for call in reversed(self._running):
            if call.began_s < from_s:
                break
            count += call.generation == self.generation
        return count

    def begin(self, task_id: int, now_s: float) -> RouteCall | None:
        """Begin a task's call; None if there is no room any more."""
        self.used_at_s = now_s
        if self.state is not RouteState.OPEN:
            return self._probe(task_id, now_s) if self.probes.task_due(now_s) else None
        if self._locked and self._waits_for_prompt:
            return None
        allowed = self._limit.allowed(now_s)
        if allowed is not None and self._places_taken(now_s) >= allowed:
            return None
        self._limit.note_began(now_s, self._running)
        call = RouteCall(self.name, self.generation, now_s, None, task_id)
        self._running[call] = None
        return call

    def begin_prompt(self, now_s: float) -> RouteCall | None:
        """Begin the call of the cheap prompt; None if it is not time for it."""
        if self.stopped:
            return self._probe(None, now_s) if self.probes.prompt_due(now_s) else None
        if not self._question.ask():
            return None
        self._prompts += 1
        limit_s = min(QUESTION_S, self.probes.limit_s)
        return RouteCall(self.name, self.generation, now_s, limit_s)

    def _probe(self, task_id: int | None, now_s: float) -> RouteCall:
        call = RouteCall(self.name, self.generation, now_s, self.probes.start(now_s), task_id)
        if task_id is None:
            self._prompts += 1
        else:
            self._running[call] = None
        return call

    # ---- what is learned

    def ended(self, call: RouteCall, outcome: Outcome, now_s: float) -> Outcome:
        """Learn from how an attempt ended; return the outcome to settle.

        An attempt that failed by an outage becomes a snooze, uncounted, if the route has stopped.
        """
        evidence = by_outcome(outcome)
        if evidence is ANSWERED:
            self.learn(call, evidence, now_s)
            self._times.add(now_s - call.began_s)
            return outcome
        pause_s = outcome.delay_s / 2 if isinstance(outcome, Snooze) else 0.0
        self.learn(call, evidence, now_s, pause_s)
        closed = self.stopped or call.generation != self.generation
        refused = evidence.effect in {Effect.OUTAGE, Effect.LOCKED} or evidence.may_be_of_task
        outage = closed and refused
        if outage and (
            isinstance(outcome, Retry)
            or (isinstance(outcome, Dead) and outcome.disposition == Disposition.EXHAUSTED)
        ):
            return Snooze(
                outcome.failure, outcome.spent, max(MIN_SNOOZE_S, self.closed_for_s(now_s))
            )
        return outcome

    def answered_since(self, at_s: float) -> bool:
        """Return whether the route takes calls and has answered one that began after `at_s`."""
        return not self.stopped and self._answered_from_s > at_s

    def learn(
        self, call: RouteCall, evidence: RouteEvidence, now_s: float, pause_s: float = 0.0
    ) -> None:
        """Learn from a call's evidence, unless the call began before the last change."""
        if call.task_id is None:
            self._prompts -= 1
        else:
            self._running.pop(call, None)
        if call.generation != self.generation:
            return
        self._now_s = now_s
        if self.state is not RouteState.OPEN:
            self.probes.end()
        elif call.task_id is None:
            self._prompt_ended(call, evidence, now_s)
            return
        match evidence.effect:
            case Effect.UP:
                self._up(call, evidence, now_s)
            case Effect.OUTAGE:
                self._failed(call, evidence, now_s)
            case Effect.REFUSAL:
                self._refused(call, evidence, now_s, pause_s)
            case Effect.LOCKED:
                self._lock(call, evidence, now_s)
            case Effect.NONE:
                self._learn_nothing(call, evidence, now_s)

    def _learn_nothing(self, call: RouteCall, evidence: RouteEvidence, now_s: float) -> None:
        if self.stopped:
            self.probes.note_no_evidence(call.task_id)
        elif evidence.may_be_of_task:
            self._question.raise_at(now_s)

    def _up(self, call: RouteCall, evidence: RouteEvidence, now_s: float) -> None:
        self._ok += 1
        if not evidence.reason:  # a provider may reject a request before it looks at the key
            self._answered_from_s = max(self._answered_from_s, call.began_s)
            if self._question.raised_at_s is not None:
                self._question.note_answered(call.began_s)
        self._locked = 0
        self._limit.note_answered(call.began_s, now_s)
        if self.probes.failed:
            self.probes.note_success(call.task_id)
        self._circuit.report(now_s, failed=False)

    def _failed(self, call: RouteCall, evidence: RouteEvidence, now_s: float) -> None:
        if self._at_fault(call, evidence, now_s) and not self.stopped:
            self._limit.note_answered(call.began_s, now_s)
            return
        self._bad += 1
        if self.stopped:
            self.probes.note_failure(call.task_id)
        former_reason, self.reason = self.reason, evidence.reason
        self._circuit.report(now_s, failed=True)
        if self.parked or not self.stopped:
            self.reason = former_reason

    def _at_fault(self, call: RouteCall, evidence: RouteEvidence, now_s: float) -> bool:
        if evidence.error_class != ErrorClass.SERVER or call.task_id is None:
            return False
        return self._faulty.note_failure(call.task_id, now_s, self._answered_from_s)

    def _refused(
        self, call: RouteCall, evidence: RouteEvidence, now_s: float, pause_s: float
    ) -> None:
        """Take fewer calls, or pause. A refused probe ends a stop: the provider works."""
        if self.stopped:
            self._circuit.report(now_s, failed=False)
            self._limit.pause(now_s, pause_s)
        else:
            self._limit.note_refused(call.began_s, now_s, pause_s, len(self._running))
        self.reason = evidence.reason

    def _lock(self, call: RouteCall, evidence: RouteEvidence, now_s: float) -> None:
        self._bad += 1
        self._locked += 1
        self.reason = evidence.reason
        if self.parked:
            self.probes.note_failure(call.task_id)
        elif self.stopped:
            # The provider answers, so its outage is over. More such answers park the route.
            self._circuit.report(now_s, failed=False)
        elif evidence.may_be_of_task:
            self._question.raise_at(now_s)
        elif self._all_locked:
            self.stop(now_s, evidence.reason, parked=True)

    @property
    def _all_locked(self) -> bool:
        """Whether so many calls in a row were refused that the key may be at fault."""
        has_answered = self._answered_from_s > self.changed_at_s
        return self._locked >= (self._longest_run if has_answered else LOCKED_RUN)

    @property
    def _waits_for_prompt(self) -> bool:
        """Whether no call starts until the prompt shows whether the key is at fault."""
        return self._question.is_open and self._all_locked

    def _prompt_ended(self, call: RouteCall, evidence: RouteEvidence, now_s: float) -> None:
        """Learn from the prompt on an open route; it shows whether the key is at fault."""
        self._question.note_ended()
        if evidence.effect is Effect.UP and not evidence.reason:
            self._up(call, evidence, now_s)
        elif evidence.effect is Effect.LOCKED and not self._question.is_open:
            # Other calls were answered meanwhile, so the key is accepted at times.
            self._question.raise_at(now_s)
        elif evidence.effect is Effect.LOCKED or self._all_locked:
            self.stop(now_s, evidence.reason or self.reason, parked=True)
        else:
            self._question.close()

    # ---- stop and restart

    def stop(self, now_s: float, reason: str, *, parked: bool) -> None:
        """Stop the route regardless of its own calls."""
        self._now_s = now_s
        self.reason = reason
        self.state = RouteState.PARKED if parked else RouteState.STOPPED
        self._circuit.stop()

    def reopen(self, now_s: float) -> None:
        """Let the route take calls again: a person or other agents know that the provider works."""
        self._now_s = now_s
        if self.stopped:
            self._circuit.resume()
        else:
            self._limit.restart(now_s)

    def _circuit_changed(self, stopped: bool) -> None:  # noqa: FBT001 - the listener's form
        self.generation += 1
        self._question = KeyQuestion()
        self._limit.restart(self._now_s)
        if stopped:
            if self.state is RouteState.OPEN:
                self.state = RouteState.STOPPED
            self.probes.begin(self._now_s, parked=self.parked)
            self._log_stop()
        else:
            log.info(
                "route %s takes calls again, after %.0f s",
                self.name,
                self._now_s - self.changed_at_s,
            )
            self.state, self._locked, self.reason = RouteState.OPEN, 0, ""
        self.changed_at_s = self._now_s

    def _log_stop(self) -> None:
        if self.parked:
            advice = PAY if self.reason.startswith(ErrorClass.MONEY) else CORRECT
            log.error(
                "route %s is parked: %s; %s: %s",
                self.name,
                self.reason,
                advice,
                self._command(),
                extra={"code": Code.ROUTE_PARKED, "route": self.name},
            )
        else:
            log.warning(
                "route %s stopped, one call at a time is tried: %s",
                self.name,
                self.reason,
                extra={"code": Code.ROUTE_STOPPED, "route": self.name},
            )

    def _command(self) -> str:
        return f"docllm agent resume {shlex.quote(self.name)} --group {self._group}"

    # ---- what others see

    def take_counts(self) -> tuple[int, int]:
        """Return the good and the bad outcomes since the last call of this method."""
        counts = self._ok, self._bad
        self._ok = self._bad = 0
        return counts

    @property
    def idle(self) -> bool:
        """Whether no call runs."""
        return not (self._running or self._prompts)

    def closed(self, now_s: float) -> bool:
        """Return whether the route takes at most one call at a time, after a stop or a pause."""
        return self.stopped or self._limit.closed(now_s)

    def takes_single_call(self, now_s: float) -> bool:
        """Return whether a closed route takes one call now, as a probe or after a pause.

        The question shows that a task waits for the route.
        """
        if self.stopped:
            return self.probes.task_due(now_s)
        if not self._limit.closed(now_s):
            return False
        allowed = self._limit.allowed(now_s)
        return allowed is None or self._places_taken(now_s) < allowed

    def trigger(self, now_s: float) -> Trigger | None:
        """Return the trigger by which tasks may leave this route now, if any.

        It is None if the route is open or its tasks must wait.
        """
        error_class = self._cause()[0]
        if self.stopped:
            is_money = self.parked and error_class == ErrorClass.MONEY
            return Trigger.MONEY if is_money else Trigger.OUTAGE
        is_full = error_class == ErrorClass.CAPACITY and self.closed(now_s)
        return Trigger.CAPACITY if is_full else None

    def closed_for_s(self, now_s: float) -> float:
        """Return for how long the route takes no calls at least.

        That is 0 if it takes calls or a probe is due.
        """
        if self.stopped:
            return max(0.0, self.probes.next_at_s - now_s)
        return self._limit.closed_for_s(now_s)

    def why(self, now_s: float) -> Reason | None:
        """Return why no call starts here, or that calls seem to hang; None if neither is so."""
        if not self.closed(now_s):
            return self._hung(now_s)
        error_class, text = self._cause()
        code = {
            RouteState.PARKED: Code.ROUTE_PARKED,
            RouteState.STOPPED: Code.ROUTE_STOPPED,
            RouteState.OPEN: Code.ROUTE_PAUSED,
        }[self.state]
        return Reason(code, self.name, error_class, text, self.closed_for_s(now_s))

    def report(self, now_s: float, utc_s: float) -> RouteFacts:
        """Return the state of the route; `utc_s` is the time of day at `now_s`."""
        allowed = self._limit.allowed(now_s)
        if not self.closed(now_s):
            return RouteFacts(self.name, self.state, allowed=allowed)
        closed_at_s = self.changed_at_s if self.stopped else self._limit.from_s
        since = datetime.fromtimestamp(utc_s - (now_s - closed_at_s), UTC)
        return RouteFacts(
            name=self.name,
            state=self.state,
            error_class=self._cause()[0],
            since=f"{since:%Y-%m-%dT%H:%M:%SZ}",
            open_in_s=self.closed_for_s(now_s),
            allowed=1 if self.stopped else allowed,
        )

    def _cause(self) -> tuple[str, str]:
        """Return class and text of the failure for which the route is closed."""
        error_class, _, text = self.reason.partition(": ")
        return (error_class, text) if error_class in _CLASSES else ("", self.reason)

    def _hung(self, now_s: float) -> Reason | None:
        """Return how many calls run far longer than usual."""
        least_s = max(HUNG_S, self._times.long_s)
        ages_s = [now_s - call.began_s for call in self._running if now_s - call.began_s >= least_s]
        if not ages_s:
            return None
        return Reason(
            Code.CALLS_HANG,
            self.name,
            seconds=max(ages_s),
            count=len(ages_s),
            usual_s=self._times.usual_s if self._times.known else None,
        )
