"""Ties a child process to the life of its parent, however the parent ends. On Linux the kernel does it, elsewhere a pipe that closes."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

_PR_SET_PDEATHSIG = 1
BY_KERNEL = sys.platform == "linux"


def start(command: Sequence[str], *, stdout: int | None = None) -> "subprocess.Popen[bytes]":
    """Start a program that is killed when the calling thread's process ends.

    It has a session of its own, so that Ctrl-C reaches the parent alone, which decides what becomes of it.
    Where the kernel cannot kill it, the program must call `follow`.
    """
    return subprocess.Popen(  # noqa: S603 - a program of our own
        command,
        stdin=subprocess.DEVNULL if BY_KERNEL else subprocess.PIPE,
        stdout=stdout,
        start_new_session=True,
        preexec_fn=_tie(os.getpid()) if BY_KERNEL else None,  # noqa: PLW1509 - it makes two system calls and takes no lock
    )


def follow() -> None:
    """Kill this process when its parent ends, as the end of standard input shows; nothing where the kernel does it."""
    if not BY_KERNEL:
        threading.Thread(target=end_with_input, daemon=True).start()


def end_with_input() -> None:
    """Read standard input to its end, then kill this process."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def tie(parent: int) -> None:
    """Let the kernel kill this process when the process `parent`, which started it, ends; nothing where the kernel cannot."""
    if BY_KERNEL:
        _tie(parent)()


def _tie(parent: int) -> Callable[[], None]:
    """Return what a child runs first; the library is loaded here, since a forked child must not load anything."""
    prctl = ctypes.CDLL(None).prctl

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the kernel was told
            os._exit(1)

    return bind
