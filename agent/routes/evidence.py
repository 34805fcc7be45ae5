"""What the end of a call shows about the provider, not about the task. Pure.

A single call may leave open whose fault a failure is. Then later calls decide: of the same task
(`FaultyTasks`), or of the cheap prompt (`KeyQuestion`).
"""

from collections import OrderedDict
from dataclasses import dataclass, replace

from docllm.agent.judge import Effect, effect_of, one_line
from docllm.agent.judge.completion import read_completion
from docllm.agent.judge.judgement import classified, taught
from docllm.agent.ports import CallFailed, Reply
from docllm.agent.ports.outcome import Dead, Failure, Moved, Outcome, Retry, Snooze, Succeeded
from docllm.schemas.settings.wordings import NO_WORDINGS, Wordings
from docllm.schemas.task.failures import ErrorClass

_SUCCESS = range(200, 300)
REMEMBERED = 1000


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


class FaultyTasks:
    """The tasks of one route that met the provider's error, and when each last did.

    Tasks that meet it again although the provider answers others are at fault themselves.
    """

    def __init__(self) -> None:
        self._failed_at_s: OrderedDict[int, float] = OrderedDict()

    def note_failure(self, task_id: int, now_s: float, answered_from_s: float) -> bool:
        """Note that a task failed; return whether it is at fault.

        It is at fault if it failed before and a call that began after that was answered.
        `answered_from_s` is when the newest call began that got a usable answer.
        """
        before_s = self._failed_at_s.pop(task_id, None)
        self._failed_at_s[task_id] = now_s
        if len(self._failed_at_s) > REMEMBERED:
            self._failed_at_s.popitem(last=False)
        return before_s is not None and answered_from_s > before_s


class KeyQuestion:
    """The question whether a refusal was about the key, or about one document alone.

    It is open from the refusal until a call that began after it is answered. The cheap prompt is
    sent to answer it, one at a time.
    """

    def __init__(self) -> None:
        self.raised_at_s: float | None = None  # None: nothing is asked
        self._is_asked = False

    @property
    def is_open(self) -> bool:
        """Whether nothing has answered the question yet."""
        return self.raised_at_s is not None

    def raise_at(self, now_s: float) -> None:
        """Raise the question: a call was refused."""
        self.raised_at_s = now_s

    def ask(self) -> bool:
        """Return whether the prompt must be sent now; it is, if so."""
        is_due = self.is_open and not self._is_asked
        self._is_asked = self._is_asked or is_due
        return is_due

    def note_answered(self, began_s: float) -> None:
        """Learn that a call was answered: the key is good, if the call began after the refusal."""
        if self.raised_at_s is not None and began_s > self.raised_at_s:
            self.raised_at_s = None

    def note_ended(self) -> None:
        """Note that the prompt ended."""
        self._is_asked = False

    def close(self) -> None:
        """Give the question up: the prompt has shown nothing."""
        self.raised_at_s = None
