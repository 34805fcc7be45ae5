"""The signals that ask a program to leave.

This module imports nothing of docllm, because the signals count before anything else is loaded.
"""

import signal


def stops() -> tuple[signal.Signals, ...]:
    """Return the signals that ask a program to stop.

    A terminal that closes (SIGHUP) asks too, unless the program was started to outlive it, as by
    nohup.
    """
    always = (signal.SIGTERM, signal.SIGINT)
    return always if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*always, signal.SIGHUP)
