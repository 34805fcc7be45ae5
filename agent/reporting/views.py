"""Where an agent's progress goes: a bar, log lines, or messages to the parent of several agents."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import orjson

from docllm.agent.reporting.group_run import GroupRun
from docllm.producer.ledger.status.progress import Totals
from docllm.producer.screen.live import bar
from docllm.schemas.text.wording import one_line

log = logging.getLogger(__name__)
# Time between two reads of the ledger: for a bar, and for the other views.
BAR_EVERY_S, CHECK_EVERY_S = 1.0, 5.0
LINE_S = 30.0


@dataclass(frozen=True, slots=True)
class DeadExample:
    """A dead task of an error class, in words."""

    error_class: str
    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """A warning at the end of all work; `code` is that of its section in the runbook."""

    text: str
    code: str


ProgressMessage = Totals | DeadExample | Note
_NAMES: dict[str, type[ProgressMessage]] = {"totals": Totals, "example": DeadExample, "note": Note}


def to_line(message: ProgressMessage) -> bytes:
    """Return a message as a line without its end."""
    (name,) = (name for name, form in _NAMES.items() if isinstance(message, form))
    return orjson.dumps({name: asdict(message)})


def from_line(line: bytes) -> ProgressMessage | None:
    """Return the message of a line; None if it is none. A handler may write anything."""
    try:
        ((name, values),) = orjson.loads(line).items()
        return _NAMES[name](**values)
    except (ValueError, TypeError, AttributeError, KeyError):
        return None


def dead_example(error_class: str, task: str, batch: str, error: str) -> DeadExample:
    """Return an example for a person."""
    return DeadExample(error_class, one_line(f"task {task} of batch {batch}: {error}"))


def in_front() -> bool:
    """Return whether stderr is a terminal with this process group in the foreground.

    Agents of one parent would draw over each other.
    """
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class View:
    """Shows the progress of a run every `check_every_s`. `draws`: it is a bar on a terminal."""

    show: Callable[[GroupRun, Totals, float], None]
    check_every_s: float = BAR_EVERY_S
    draws: bool = False


class LineView:
    """A log line now and then, while there is work or something changed."""

    def __init__(self) -> None:
        self._said: Totals | None = None
        self._next_at_s = 0.0

    def show(self, run: GroupRun, totals: Totals, now_s: float) -> None:
        """Log a line if it is time."""
        if self._said is None:
            self._said, self._next_at_s = totals, now_s + LINE_S
        elif now_s >= self._next_at_s:
            self._next_at_s = now_s + LINE_S
            if totals.open or totals != self._said:
                log.info("%s", run.line())
            self._said = totals


@contextmanager
def view_of(tell: Callable[[bytes], None] | None) -> Iterator[View]:
    """Yield the place where progress goes, while the block runs."""
    if tell is not None:
        yield View(lambda _run, totals, _now_s: tell(to_line(totals)))
        return
    with bar("tasks", ticks=False, visible=in_front()) as shown:
        if shown.shown:
            yield View(
                lambda run, _totals, _now_s: shown.show(*run.shares, run.facts()), draws=True
            )
        else:
            yield View(LineView().show, CHECK_EVERY_S)
