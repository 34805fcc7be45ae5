"""The first and the last steps of a program.

The first steps run before the program loads its code, which takes half a second. So this module may
import nothing that is slow.
"""

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
    """End at once on these signals, because nothing has begun.

    This holds until the program sets handlers of its own.
    """
    for number in signals:
        signal.signal(number, lambda _number, _frame: os._exit(code))


def end(signals: Sequence[signal.Signals], code: int) -> NoReturn:
    """Exit with `code`, whichever of these signals still comes.

    The first signal ends the wait for threads; later signals are ignored. The interpreter removes
    handlers while it ends, so a second Ctrl-C would decide the exit code; an ignored signal stays
    ignored.
    """
    leave_on(signals, code)
    for number in signals:
        atexit.register(signal.signal, number, signal.SIG_IGN)
    sys.exit(code)


def take_standard_files() -> None:
    """Make sure that standard input, output and error are open and take any text.

    A closed standard file would be reopened as the program's first file or socket, and be written
    to.
    """
    for number, (name, mode) in enumerate(_STANDARD):
        if not _is_open(number):
            # `open` returns the lowest free descriptor, which is this one. Reads from a closed
            # input must fail: a closed input is not an empty input.
            opened = os.open(os.devnull, os.O_RDWR if number else os.O_WRONLY)
            os.set_inheritable(opened, True)  # noqa: FBT003 - its only argument
        if getattr(sys, name) is None:
            # It stays open for as long as the program runs.
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    encoding = sys.stderr.encoding
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Remarks()), encoding, "backslashreplace", line_buffering=True
    )


class _Remarks(io.FileIO):
    """Standard error; output that it does not take is dropped.

    Its reader may have left, or its disk may be full. That must not change what the program does.
    """

    def __init__(self) -> None:
        super().__init__(2, "w", closefd=False)

    def write(self, text: Any, /) -> int:
        """Write what can be written; otherwise count all of it as written."""
        try:
            taken = super().write(text)
        except OSError:
            taken = None
        return len(text) if taken is None else taken


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
