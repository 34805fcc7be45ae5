"""A handler's log, whose lines name their task."""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


class TaskLog(logging.LoggerAdapter[logging.Logger]):
    """Writes to the logger `handler`; each message begins with the name of its task.

    `facts` are what a log of JSON objects says of the task: batch, task, attempt and route.
    """

    def __init__(self, name: str, *, facts: Mapping[str, object] = MappingProxyType({})) -> None:
        super().__init__(logging.getLogger("handler"))
        self._name = name
        self.facts = facts

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        """Log a message, formatted with `args` as in `logging`."""
        # Without arguments logging formats nothing, and a % stays as it is.
        name = self._name.replace("%", "%%") if args else self._name
        message = f"{name}: {msg}"
        extra = {**self.facts, **(kwargs.pop("extra", None) or {})}
        self.logger.log(level, message, *args, extra=extra, **kwargs)
