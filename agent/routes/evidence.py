"""Derives from the end of a call what it shows about the provider, not about the task.

Pure.
"""

from dataclasses import dataclass, replace

from docllm.agent.judge import Effect, effect_of, one_line
from docllm.agent.judge.completion import read_completion
from docllm.agent.judge.judgement import classified, taught
from docllm.agent.ports import CallFailed, Reply
from docllm.agent.ports.outcome import Dead, Failure, Moved, Outcome, Retry, Snooze, Succeeded
from docllm.schemas.settings.wordings import NO_WORDINGS, Wordings
from docllm.schemas.task.failures import ErrorClass

_SUCCESS = range(200, 300)


@dataclass(frozen=True, slots=True)
class RouteEvidence:
    """What a call says about the provider.

    `reason` is the class and text of the failure, for a person. `reason` and `error_class` are
    empty for a success. `may_be_of_task`: a refusal as for a wrong key, which may be about the
    task's document alone.
    """

    effect: Effect
    reason: str = ""
    error_class: str = ""
    may_be_of_task: bool = False


ANSWERED = RouteEvidence(Effect.UP)
_NO_EVIDENCE = RouteEvidence(Effect.NONE)


def by_outcome(outcome: Outcome) -> RouteEvidence:
    """Return the evidence of an attempt.

    An attempt that made no call, or was ended from outside, says nothing.
    """
    if type(outcome) is Succeeded:
        return ANSWERED if outcome.spent.call_id else _NO_EVIDENCE
    if isinstance(outcome, Retry | Snooze | Moved | Dead):
        return _of_failure(outcome.failure)
    return _NO_EVIDENCE


def by_answer(answer: Reply | CallFailed, wordings: Wordings = NO_WORDINGS) -> RouteEvidence:
    """Return the evidence of the answer to a prompt of our own."""
    if isinstance(answer, CallFailed):
        return _of_failure(Failure(answer.error_class, one_line(answer.text)))
    if answer.status not in _SUCCESS:
        return _of_failure(classified(answer, wordings))
    failure = read_completion(answer.body, schema=None, verbatim=True).failure
    if failure is None:
        return ANSWERED
    evidence = _of_failure(taught(failure, wordings))
    # Our own prompt is harmless, so an unusable completion is the provider's fault.
    return replace(evidence, effect=Effect.OUTAGE) if evidence.effect is Effect.UP else evidence


def _of_failure(failure: Failure) -> RouteEvidence:
    # A call that is refused again while others are answered may be the document's fault, or the
    # key's at that moment: it shows neither.
    is_of_task = failure.may_be_of_task and failure.error_class == ErrorClass.BAD_REQUEST
    return RouteEvidence(
        Effect.NONE if is_of_task else effect_of(failure.error_class),
        f"{failure.error_class}: {failure.text}",
        failure.error_class,
        failure.may_be_of_task,
    )
