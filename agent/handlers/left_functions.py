"""The functions of handlers that go on although their attempts have ended."""

import logging
from collections.abc import Callable

from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.schemas.codes import Code

log = logging.getLogger(__name__)


class NoRoomError(Exception):
    """An attempt did not begin, because too many functions of handlers never end."""


class LeftFunctions:
    """Counts the threads and coroutines that nothing can end, each until its function returns.

    While there are `most`, no attempt begins and `failed` is called with the reason.
    """

    def __init__(self, *, most: int, failed: Callable[[str], None]) -> None:
        self._most = most
        self._failed = failed
        self._left: set[object] = set()

    def require_room(self) -> None:
        """Raise NoRoomError if there are too many."""
        if len(self._left) >= self._most:
            self._failed(
                f"{len(self._left)} functions of handlers go on though their attempts have ended, "
                "so no other one may begin; give what they call a time limit, or let the type run "
                'in processes, which can be ended: run = "process"'
            )
            raise NoRoomError

    def add(self, runs_in: object, context: AttemptContext) -> None:
        """Count a thread or an asyncio task whose attempt has ended, and log it."""
        self._left.add(runs_in)
        log.warning(
            "%s: its attempt has ended, but its function goes on",
            context.name,
            extra={"code": Code.HANDLER_GOES_ON},
        )

    def discard(self, runs_in: object) -> None:
        """Count it no more, if it was counted: its function has returned."""
        self._left.discard(runs_in)
