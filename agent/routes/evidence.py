"""What the end of a call tells of its route: of the provider, not of the task. Pure."""

from dataclasses import dataclass, replace

from agent.judge import Effect, effect_of, one_line
from agent.judge.completion import read
from agent.judge.judge import classified
from agent.outcome import Dead, Failure, Moved, Outcome, Retry, Snooze, Succeeded
from agent.ports import CallFailed, Reply

_SUCCESS = range(200, 300)


@dataclass(frozen=True, slots=True)
class RouteEvidence:
    """`effect`: what is known of the provider now.

    `reason`: class and text, for a person; it is empty for a success, as `error_class` is.
    """

    effect: Effect
    reason: str = ""
    error_class: str = ""


def by_outcome(outcome: Outcome) -> RouteEvidence:
    """Return what an attempt tells. One that made no call, or was ended from outside, tells nothing."""
    if isinstance(outcome, Succeeded):
        return RouteEvidence(Effect.UP if outcome.spent.trace_id else Effect.NONE)
    if isinstance(outcome, Retry | Snooze | Moved | Dead):
        return _of(outcome.failure)
    return RouteEvidence(Effect.NONE)


def by_answer(answer: Reply | CallFailed) -> RouteEvidence:
    """Return what an answer tells that no task asked for."""
    if isinstance(answer, CallFailed):
        return _of(Failure(answer.error_class, one_line(answer.text)))
    if answer.status not in _SUCCESS:
        return _of(classified(answer))
    failure = read(answer.body, schema=None, verbatim=True).failure
    if failure is None:
        return RouteEvidence(Effect.UP)
    told = _of(failure)
    # Our prompt is no reason to answer what is no completion.
    return replace(told, effect=Effect.OUTAGE) if told.effect is Effect.UP else told


def _of(failure: Failure) -> RouteEvidence:
    return RouteEvidence(
        effect_of(failure.error_class),
        f"{failure.error_class}: {failure.text}",
        failure.error_class,
    )
