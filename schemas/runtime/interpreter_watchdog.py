"""Ends a process in which no Python code runs any more, and writes where it hangs.

A library that computes without end while it holds the interpreter's lock, such as a regular
expression that backtracks, stops every thread and every signal handler of Python. So the kernel
keeps the time: a timer of processor time, which a thread sets back each second. When it runs out,
functions of C write the tracebacks and end the process. No task is lost by this.

Processor time, because a process that was stopped or suspended has used none when it goes on. A
library that waits with the lock, without computing, is therefore not found.
"""

import ctypes
import faulthandler
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

FROZEN = int(signal.SIGVTALRM)  # exit code
LIMIT_S = 60.0  # of processor time, of all threads together
_EVERY_S = 1.0


@contextmanager
def ended_when_frozen(limit_s: float = LIMIT_S) -> Iterator[None]:
    """End this process with the code FROZEN if no other thread runs for `limit_s`."""
    libc = ctypes.CDLL(None)
    libc.signal.restype, libc.signal.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)
    # Process 1 of a container ignores signals that it does not handle. As a handler, `_exit` is
    # called with the signal's number.
    before = libc.signal(FROZEN, ctypes.cast(libc._exit, ctypes.c_void_p))  # noqa: SLF001 - of C
    faulthandler.register(FROZEN, file=2, all_threads=True, chain=True)
    over = threading.Event()

    def set_back() -> None:
        while not over.wait(_EVERY_S):
            signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)

    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    thread = threading.Thread(target=set_back, name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        faulthandler.unregister(FROZEN)
        libc.signal(FROZEN, before)
