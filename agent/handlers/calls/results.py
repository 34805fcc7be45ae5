"""What a call gives its handler: an answer, or an error that ends the handler."""

from dataclasses import dataclass

from docllm.agent.ports.outcome import Dead, Outcome, Retry, Snooze, Succeeded
from docllm.schemas.task.result.answer import text_of_answer
from docllm.schemas.task.result.codec import COMPLETION


@dataclass(frozen=True, slots=True)
class Answer:
    """A completion that fits its task, as the provider sent it.

    `outcome` is settled when a handler returns the answer. `codec` is how its text is read.
    """

    body: bytes
    outcome: Succeeded
    codec: int = COMPLETION

    @property
    def text(self) -> str:
        """The message's text without leading thoughts; empty if the message has none.

        Under a schema it is the JSON alone, without a fence around it.
        """
        return text_of_answer(self.body, self.codec)


class CallRefusedError(Exception):
    """A call gave no usable answer.

    The error ends the handler, and `outcome` is settled. `was_answered` says that the provider
    answered, and bills, although the answer cannot be used.
    """

    def __init__(self, outcome: Outcome, *, was_answered: bool = False) -> None:
        super().__init__(outcome.failure.text if isinstance(outcome, Retry | Snooze | Dead) else "")
        self.outcome = outcome
        self.was_answered = was_answered


class LeaseLostError(Exception):
    """A call was not made, because the lease of the task's claim is lost or late.

    Another agent may have the task. The error ends the handler. A handler must not catch it.
    """


class WaitedTooLongError(Exception):
    """A call or a use got no permit, or an attempt no lock, in the time that it may wait.

    The limits left no room, or the lock was taken. The error ends the handler. A handler may catch
    it only where it set `wait_s`.
    """
