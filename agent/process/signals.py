"""The signals that ask a program to leave, or to read its settings again.

This module imports nothing of docllm, because the signals count before anything else is loaded.
"""

import os
import signal
from functools import cache


def stops() -> tuple[signal.Signals, ...]:
    """Return the signals that ask a program to stop.

    A terminal that closes (SIGHUP) asks too, unless the program was started to outlive it, as by
    nohup. A program without a terminal gets SIGHUP for another reason.
    """
    always = (signal.SIGTERM, signal.SIGINT)
    outlives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return always if outlives or not has_terminal() else (*always, signal.SIGHUP)


def rereads() -> tuple[signal.Signals, ...]:
    """Return the signals that ask a program without a terminal to read its settings again."""
    return () if has_terminal() else (signal.SIGHUP,)


@cache
def has_terminal() -> bool:
    """Return whether a terminal controlled this process when it was first asked.

    Later, a terminal that has closed would look like none.
    """
    try:
        descriptor = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return False
    os.close(descriptor)
    return True
