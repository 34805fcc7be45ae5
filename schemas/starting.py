"""What a program does first, before it loads its code, which takes half a second, and last. It may import nothing that is slow."""

import atexit
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

INTERRUPTED = 130  # exit code
_STANDARD = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def leave_on(signals: Sequence[signal.Signals], code: int) -> None:
    """End at once on these signals: nothing has begun. It holds until the program has handlers of its own."""
    for number in signals:
        signal.signal(number, lambda _number, _frame: os._exit(code))


def end(signals: Sequence[signal.Signals], code: int) -> NoReturn:
    """Exit with `code`, whichever of these signals still comes: the first ends the wait for threads, and after it none counts.

    The interpreter takes handlers away while it ends, and a second Ctrl-C would decide the exit code; an ignored signal stays ignored.
    """
    leave_on(signals, code)
    for number in signals:
        atexit.register(signal.signal, number, signal.SIG_IGN)
    sys.exit(code)


def take_standard_files() -> None:
    """See to it that standard input, output and error are there and take any text, whoever started the program.

    One that is closed would be opened again as the first file or socket of the program, and be written to.
    """
    for number, (name, mode) in enumerate(_STANDARD):
        if not _is_open(number):
            # The lowest free number is taken. What reads from a closed input must fail: it is not empty.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR if number else os.O_WRONLY), True)  # noqa: FBT003 - its only argument
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - for as long as the program runs
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    encoding = sys.stderr.encoding
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(_Remarks()), encoding, "backslashreplace", line_buffering=True)


class _Remarks(io.FileIO):
    """Standard error. What it does not take, as its reader has left or its disk is full, is dropped: it decides nothing."""

    def __init__(self) -> None:
        super().__init__(2, "w", closefd=False)

    def write(self, text: Any, /) -> int:
        """Write what can be written; all of it counts as written otherwise."""
        try:
            written = super().write(text)
        except OSError:
            written = None
        return len(text) if written is None else written


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
