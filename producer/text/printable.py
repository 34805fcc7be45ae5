"""Makes untrusted text safe to show: it could move the cursor or forge a log line.

Names, answers and errors come from outside. An error's text, a batch's name, a header or a field of
Redis may hold escape sequences, line ends or characters that change the direction of writing. None
of them reaches a terminal or a log unchanged.
"""

import json
import logging
import re
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from types import TracebackType
from typing import TextIO

from docllm.schemas.runtime.next_command import with_config

log = logging.getLogger("python")

# C1 controls, soft hyphen, bidirectional and other format controls, line ends, surrogates. In a
# JSON text they occur only within strings, where \uXXXX means the same. JSON escapes the controls
# below U+0020 already, except the line ends between its lines.
_UNSAFE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)

# An extra of log records: the lines of a traceback without the error's text.
FRAMES = "frames"
# An extra of log records that ask for an act: a `docllm.schemas.codes.Code`, or None.
CODE = "code"
# Extras of log records that tell of which task they are; only JSON shows them apart.
TASK_FIELDS = ("batch", "task", "attempt", "route", "trace_id")

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def shown(text: str, limit: int | None = None) -> str:
    """Return text that is safe to show, on one line."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:limit])


def shown_lines(text: str) -> str:
    """Return text that is safe to show, with its line ends."""
    return "\n".join(map(shown, text.split("\n")))


def escaped(text: str) -> str:
    """Return the same JSON lines, safe to show: unsafe characters become JSON escapes."""
    return _UNSAFE.sub(lambda match: _escape(match[0]), text)


def _escape(letter: str) -> str:
    code = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[start : start + 4]}" for start in range(0, len(code), 4))


class ShownFormatter(logging.Formatter):
    """Formats log records so that no text can forge a line or reach the terminal's controls.

    A message becomes one line. A traceback keeps its lines, each indented, so that none of them
    looks like a record. Commands in messages name the configuration file that the program was
    started with. A line that asks for an act ends with its code in brackets.
    """

    def __init__(self, form: str, *, config_file: str | None = None) -> None:
        super().__init__(form)
        self._config_file = config_file

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's own line, and the lines of its traceback."""
        frames = getattr(record, FRAMES, "")
        return super().format(record) + (f"\n{_indented(frames)}" if frames else "")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name in logging
        """Return the record's own line."""
        code = getattr(record, CODE, None)
        line = super().formatMessage(record) + (f" [{code}]" if code else "")
        return with_config(shown(line), self._config_file)

    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802 - the name in logging
        """Return a traceback as indented lines."""
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - the name in logging
        """Return a stack as indented lines."""
        return _indented(super().formatStack(stack_info))


class JsonFormatter(logging.Formatter):
    """Formats log records as JSON objects, each on one line, for programs that gather logs.

    `common` are fields of every line. No text can forge a line, nor reach the controls of a
    terminal on which somebody reads the lines.
    """

    def __init__(self, common: Mapping[str, object], *, config_file: str | None = None) -> None:
        super().__init__()
        self._common = common
        self._config_file = config_file

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        at = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, object] = {
            "ts": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "code": getattr(record, CODE, None) or None,
            "msg": with_config(record.getMessage(), self._config_file),
            **self._common,
            **{name: getattr(record, name) for name in TASK_FIELDS if hasattr(record, name)},
        }
        frames = [getattr(record, FRAMES, "")]
        if record.exc_info:
            frames.append(self.formatException(record.exc_info))
        if traceback_text := "\n".join(filter(None, frames)):
            fields["traceback"] = traceback_text
        return escaped(json.dumps(fields, ensure_ascii=False, default=str))


def logs_json() -> bool:
    """Return whether the log of this process consists of JSON objects."""
    return any(
        isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers
    )


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stderr` is when a record comes: a progress bar may stand in for it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        self.setStream(sys.stderr)
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name in logging
        """Write a record whose arguments do not fit its message with the message alone.

        logging itself would write a traceback and the arguments, as they are.
        """
        error = sys.exc_info()[1]
        if not record.args or isinstance(error, OSError):
            return
        with suppress(Exception):  # a message of a stranger's class
            unfilled = copy(record)
            unfilled.msg, unfilled.args = f"{record.msg} (its arguments do not fit: {error})", None
            self.emit(unfilled)


def log_to_stderr(formatter: logging.Formatter, level: str | int) -> None:
    """Send the log of this process to stderr, and what Python warns of too, as lines of the log."""
    handler = _StderrHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler])
    logging.captureWarnings(capture=True)


def log_only_json(formatter: JsonFormatter) -> None:
    """Write the log of this process as objects from now on, also what Python writes to stderr.

    That is errors that end a thread, and errors in finalizers; warnings are in the log already.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _StderrHandler):
            handler.setFormatter(formatter)
    threading.excepthook = _log_thread_error
    sys.unraisablehook = _log_ignored_error


def _log_thread_error(args: threading.ExceptHookArgs) -> None:
    if not issubclass(args.exc_type, SystemExit):
        error = args.exc_value or args.exc_type()
        log.error("an error ended the thread %s", args.thread and args.thread.name, exc_info=error)


def _log_ignored_error(args: "sys.UnraisableHookArgs") -> None:
    place = args.err_msg or "an error is ignored in"
    log.error("%s %r", place, args.object, exc_info=args.exc_value)


def shown_traceback(error: BaseException) -> str:
    """Return the traceback of an error, safe to show."""
    return shown_lines("".join(traceback.format_exception(error)).removesuffix("\n"))


def _indented(text: str) -> str:
    return "\n".join(f"    {shown(line)}" for line in text.split("\n"))
