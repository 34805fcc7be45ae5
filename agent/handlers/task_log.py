"""A handler's log, whose lines name their task."""

import logging
from typing import Any


class TaskLog(logging.LoggerAdapter[logging.Logger]):
    """Writes to the logger `handler`; each message begins with the name of its task."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger("handler"))
        self._name = name

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        """Log a message, formatted with `args` as in `logging`."""
        # Without arguments logging formats nothing, and a % stays as it is.
        name = self._name.replace("%", "%%") if args else self._name
        message = f"{name}: {msg}"
        self.logger.log(level, message, *args, **kwargs)
