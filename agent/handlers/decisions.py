"""The exceptions by which a handler decides about its task, and hears that its time is over.

Any other error is judged by the rules of the task's type.
"""


class SoftLimitError(Exception):
    """The attempt has passed `soft_limit_s` of its type; the next call raises this, once.

    A handler may catch it to end with what it has. Otherwise the attempt has failed.
    """


class GiveUpError(Exception):
    """The task is dead until somebody replays it; the text is the reason shown to a person."""


class TryAgainError(Exception):
    """The attempt counts, and the next one comes after at least `after_s` seconds.

    The text is the reason shown to a person. Raises ValueError for a wait that is negative or not a
    number.
    """

    def __init__(self, reason: str, *, after_s: float = 0.0) -> None:
        if not after_s >= 0:
            raise ValueError(f"after_s is {after_s}; write seconds from 0 on")
        super().__init__(reason)
        self.after_s = after_s


class AttemptEndedError(Exception):
    """A call was not made, or a task not ordered, because the attempt had ended before.

    The handler still runs, or has left a thread or an asyncio task behind, and the error ends it. A
    handler must not catch it.
    """
