"""The signals that ask a program to leave. Imports nothing of docllm: they count before anything is loaded."""

import signal


def stops() -> tuple[signal.Signals, ...]:
    """Return them. A terminal that is closed asks too, unless the program was started to outlive it, as by nohup."""
    always = (signal.SIGTERM, signal.SIGINT)
    return always if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*always, signal.SIGHUP)
