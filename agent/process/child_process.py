"""Starts child processes tied to their parent's life, and lets them report how they end.

On Linux the kernel kills a child when its parent ends. Elsewhere the child sees that a pipe closes.
"""

import ctypes
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO

import docllm
from docllm.schemas.runtime.next_command import is_module

_PR_SET_PDEATHSIG = 1
INTERPRETER = (sys.executable, "-P", "-m")  # without modules of the current folder
BY_KERNEL = sys.platform == "linux"


MESSAGE_BYTES = 4096  # the longest line that a pipe takes as a whole
_RECEIVED_BYTES = 1 << 20
_PART_BYTES = 1 << 16
# A longer line is passed on in parts, so that a child without line ends cannot fill the memory.
LINE_BYTES = 1 << 20


class Word(Enum):
    """A word that a child reports to its parent.

    An exit code alone proves nothing, because a handler may end the process with any code.
    """

    BEGAN = b"b"  # from here on, handlers may run
    DONE = b"d"  # the group's work is done
    ENDED = b"e"  # the exit code that follows is the agent's own


@dataclass(slots=True, eq=False)
class ParentPipe:
    """The child's end of the pipe to its parent; without a parent it does nothing.

    Each word and each message is a line. A word has one letter, and no message is that short.
    """

    descriptor: int | None

    def say(self, word: Word) -> None:
        """Report a word to the parent. If the parent is gone, this process will end anyway."""
        if self.descriptor is not None:
            with suppress(OSError):
                os.write(self.descriptor, word.value + b"\n")

    def tell(self, message: bytes) -> None:
        """Send a message about the work; drop it if the pipe is full or the message is too long."""
        line = message + b"\n"
        if self.descriptor is None or len(line) > MESSAGE_BYTES:
            return
        with suppress(OSError):
            if select.select([], [self.descriptor], [], 0)[1]:
                os.write(self.descriptor, line)


def program(*arguments: str) -> list[str]:
    """Return the command line of a child of this program.

    The child's messages name commands in the form in which this program was started.
    """
    module = ["docllm.agent"] if is_module() else ["docllm", "agent"]
    return [*INTERPRETER, *module, *arguments]


def environment() -> dict[str, str] | None:
    """Return a child's environment, or None if the child finds this program without a change.

    `-P` leaves out the first folder of the path, so it has to be added if docllm is only there.
    """
    root = str(Path(docllm.__file__).resolve().parents[1])
    first, *others = map(os.path.realpath, sys.path)
    if sys.flags.safe_path or root != first or root in others:
        return None
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
    }


def start(
    command: Sequence[str],
    *,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    keep: Sequence[int] = (),
    bare: bool = False,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a program that is killed when the calling thread's process ends.

    The program inherits the descriptors `keep`. It has a session of its own, so that Ctrl-C reaches
    only the parent, which decides what the child does. Where the kernel cannot kill it, the program
    must call `follow`. A `bare` program gets no variable that could hold a secret. It runs in
    `folder` and with `variables`, if they are given.
    """
    if variables is None:
        variables = _bare(environment()) if bare else environment()
    return subprocess.Popen(  # noqa: S603 - a program of our own
        command,
        stdin=subprocess.DEVNULL if BY_KERNEL else subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        pass_fds=keep,
        cwd=folder,
        env=variables,
        # The function makes two system calls and takes no lock.
        preexec_fn=_tie(os.getpid()) if BY_KERNEL else None,  # noqa: PLW1509
    )


def _bare(variables: Mapping[str, str] | None) -> dict[str, str]:
    kept = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")
    every = os.environ if variables is None else variables
    return {name: every[name] for name in kept if name in every}


def begin(descriptor: int) -> socket.socket:
    """Begin as a child; return its end of the link.

    The kernel ends this process before the agent when memory runs out.
    """
    # A terminal's Ctrl-C is for the agent, which decides what becomes of its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    follow()
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    return connection


def received(connection: socket.socket, size: int) -> bytes:
    """Return the next bytes; none if the agent has closed the link."""
    raw = bytearray()
    while len(raw) < size and (part := connection.recv(min(size - len(raw), _RECEIVED_BYTES))):
        raw += part
    return bytes(raw) if len(raw) == size else b""


def limit(what: int, most: int) -> None:
    """Set one limit of this process, such as RLIMIT_DATA, for good."""
    resource.setrlimit(what, (most, most))


def follow() -> None:
    """Kill this process when its parent ends, which closes standard input.

    Does nothing where the kernel kills it.
    """
    if not BY_KERNEL:
        threading.Thread(target=end_with_input, name="parent-watch", daemon=True).start()


def end_with_input() -> None:
    """Read standard input to its end, then kill this process."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def tie(parent: int) -> None:
    """Let the kernel kill this process when `parent`, the process that started it, ends.

    Does nothing where the kernel cannot do that.
    """
    if BY_KERNEL:
        _tie(parent)()


def _tie(parent: int) -> Callable[[], None]:
    """Return the function that a child runs first.

    The library is loaded here, because a forked child must not load anything.
    """
    prctl = ctypes.CDLL(None).prctl

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before the kernel knew
            os._exit(1)

    return bind


class LinePipe:
    """Reads lines from a descriptor, which it closes at the end."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.open = True
        self._rest = b""

    def lines(self) -> list[bytes]:
        """Return the lines that have arrived, without their ends."""
        part = self._part()
        *lines, self._rest = (self._rest + part).split(b"\n")
        if len(self._rest) > LINE_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        return lines

    def close(self) -> list[bytes]:
        """Return what is left, and close the descriptor.

        A process that the child started may hold the other end open, so this waits for nothing.
        """
        lines = []
        while self.open and (arrived := self._part()):
            *whole, self._rest = (self._rest + arrived).split(b"\n")
            lines += whole
        lines += [self._rest] if self._rest else []
        self._rest = b""
        self.open = False
        with suppress(OSError):
            os.close(self.descriptor)
        return lines

    def _part(self) -> bytes:
        if not self.open:
            return b""
        try:
            part = os.read(self.descriptor, _PART_BYTES)
        except BlockingIOError:
            return b""
        self.open = bool(part)
        return part
