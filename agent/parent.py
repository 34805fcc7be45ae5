"""Starts child processes of this program, tied to the life of their parent, and lets them tell it how they ended.

On Linux the kernel ends a child with its parent, elsewhere a pipe that closes.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path

_PR_SET_PDEATHSIG = 1
BY_KERNEL = sys.platform == "linux"


class Word(Enum):
    """What a child tells its parent. An exit code alone proves nothing: a handler may end the process with any."""

    BEGAN = b"b"  # handlers may run from now on
    DONE = b"d"  # the group's work is done
    ENDED = b"e"  # the exit code that follows is the agent's own


class Report:
    """The child's end of the pipe to its parent; without a parent nobody is told."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def say(self, word: Word) -> None:
        """Tell the parent; one that is gone ends this process by itself."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.write(self._descriptor, word.value)


def program(*arguments: str) -> list[str]:
    """Return the command line of a child of this program, which a file `agent.py` in the current folder cannot replace."""
    return [sys.executable, "-P", "-m", "agent", *arguments]


def _environment() -> dict[str, str] | None:
    """Return a child's environment if it would not find this program: `-P` leaves out the current folder."""
    root = str(Path(__file__).resolve().parents[1])
    if root in (sys.path if sys.flags.safe_path else sys.path[1:]):
        return None
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}


def start(command: Sequence[str], *, stdout: int | None = None, keep: Sequence[int] = ()) -> "subprocess.Popen[bytes]":
    """Start a program that is killed when the calling thread's process ends; it inherits the descriptors `keep`.

    It has a session of its own, so that Ctrl-C reaches the parent alone, which decides what becomes of it.
    Where the kernel cannot kill it, the program must call `follow`.
    """
    return subprocess.Popen(  # noqa: S603 - a program of our own
        command,
        stdin=subprocess.DEVNULL if BY_KERNEL else subprocess.PIPE,
        stdout=stdout,
        start_new_session=True,
        pass_fds=keep,
        env=_environment(),
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
