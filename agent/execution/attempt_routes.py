"""The routes of one attempt: the route on which it starts, and the fallbacks that it may use.

A task goes on within its attempt if its route refused it, or has failed. A route learns of its own
failure first, so that it stops for everybody if the provider is down. A task that was refused stays
there until another route takes it: `map-reduce` may split a part that is too long, and go on.
"""

from functools import partial

from docllm.agent.execution.admission import Admission
from docllm.agent.execution.start_decisions import AttemptStart
from docllm.agent.handlers import OtherRoute
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.ports.outcome import Dead, Outcome, Retry, Snooze
from docllm.schemas.task.failures import ErrorClass

MIN_WAIT_S = 1.0
# Failures that are about the task: its route would fail it again.
_OF_TASK = frozenset({ErrorClass.TOO_LONG, ErrorClass.INPUT_CUT, ErrorClass.FILTERED})


class AttemptRoutes:
    """Decides on which route an attempt makes a failed call again."""

    def __init__(self, *, admission: Admission, delivery: Delivery, start: AttemptStart) -> None:
        self._admission = admission
        self._delivery = delivery
        self._start: AttemptStart | None = start

    def route_after_failure(self, outcome: Retry | Snooze | Dead) -> OtherRoute | Outcome:
        """Return the route on which to make a failed call again, or the outcome to settle."""
        delivery = self._delivery
        if not delivery.plan.has_fallback:
            return outcome
        is_of_task = outcome.failure.error_class in _OF_TASK
        judged = outcome if is_of_task else self.end(outcome)
        trigger = self._admission.trigger(delivery.route, outcome)
        following = [] if trigger is None else list(delivery.plan.after(delivery.route, trigger))
        for route in following:
            start = self._admission.start_on_fallback(delivery, route)
            if start is not None:
                self.end(outcome)
                self._start = start
                return OtherRoute(route, start.limit_s, start.call_permits)
        if following and is_of_task:
            is_open = partial(self._admission.is_open_for, delivery)
            delivery.next_route = next(filter(is_open, following), following[0])
            wait_s = self._admission.closed_for_s(delivery.next_route)
            return Snooze(outcome.failure, outcome.spent, max(MIN_WAIT_S, wait_s))
        return judged

    def retry_on_route(self, outcome: Outcome) -> OtherRoute | Outcome | None:
        """Return the same route if it takes another call now, or the outcome to settle.

        The route learns of the outcome first. Returns None if it has no room for a call now, though
        it has not stopped: the attempt may ask again.
        """
        judged, delivery = self.end(outcome), self._delivery
        if judged is not outcome or not self._admission.may_call_again(delivery):
            return judged
        self._start = self._admission.start_again(delivery)
        if self._start is None:
            return None
        return OtherRoute(delivery.route, self._start.limit_s, self._start.call_permits)

    def end(self, outcome: Outcome) -> Outcome:
        """End the start, if it has not ended yet; return the outcome to settle."""
        if self._start is None:
            return outcome
        start, self._start = self._start, None
        return self._admission.end(start, outcome)
