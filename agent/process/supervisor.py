"""`--processes N`: a parent that starts N agents and gives one exit code for all of them.

It forwards signals and restarts agents that died. It knows commands and exit codes, but not what an
agent does: a `Watch` shows what the agents report. It holds no connection and starts no thread, so
that a child can be started at any time.

As process 1 of a container it also collects processes that ended agents left behind.
"""

import logging
import os
import select
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from subprocess import Popen
from typing import Protocol

from docllm.agent.process import child_process
from docllm.agent.process.child_process import LinePipe, Word
from docllm.agent.process.signals import rereads, stops
from docllm.schemas.codes import Code
from docllm.schemas.errors import ConfigError, DocllmError, InputError, UnsafeStateError
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.runtime.interpreter_watchdog import FROZEN
from docllm.schemas.runtime.starting import INTERRUPTED
from docllm.schemas.text.wording import number_of

log = logging.getLogger(__name__)

_FORCING = 3  # the number of the signal that ends everything
# Exit codes of finished work; the second one is used with --fail-on-dead.
_DONE = (0, InputError.exit_code)
# A restart would end in the same way.
_NO_RESTART = (ConfigError.exit_code, UnsafeStateError.exit_code)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Computes the wait before a restart; a child that ran for `well_after_s` resets it."""

    first_s: float = 1.0
    longest_s: float = 60.0
    well_after_s: float = 60.0

    def wait_s(self, failures: int, chance: float) -> float:
        """Return the wait after so many failures in a row; `chance` (0 to 1) adds up to a fifth."""
        return min(self.first_s * 2.0 ** min(failures - 1, 30), self.longest_s) * (1 + 0.2 * chance)


@dataclass(slots=True)
class _ChildProcess:
    number: int
    due_at_s: float | None  # when to start it; None while it runs, and forever once it is done
    process: "Popen[bytes] | None" = None
    report: LinePipe | None = None  # brings its words and messages
    errors: LinePipe | None = None  # brings its stderr, if the watch takes that
    words: set[Word] = field(default_factory=set)
    started_at_s: float = 0.0
    failures: int = 0


class Watch(Protocol):
    """Shows what the children report.

    `takes_errors` says that it wants their stderr, and `tick` is called every `tick_s` seconds.
    """

    takes_errors: bool
    tick_s: float

    def take_message(self, message: bytes) -> None:
        """Take in a message of a child."""
        ...

    def show_line(self, line: bytes) -> None:
        """Show a line that a child wrote to its stderr."""
        ...

    def tick(self) -> None:
        """Show the time that has passed."""
        ...


class Supervisor:
    """Runs `count` children.

    `command` returns the arguments of a child, given its number (from 1) and the descriptor to
    which it reports.
    """

    def __init__(
        self,
        *,
        command: Callable[[int, int], Sequence[str]],
        count: int,
        until_done: bool,
        clock: Clock,
        jitter: Callable[[], float],
        watch: Watch,
        backoff: Backoff = Backoff(),
    ) -> None:
        self._command = command
        self._until_done = until_done
        self._clock = clock
        self._jitter = jitter
        self._backoff = backoff
        self._watch = watch
        self._children = [_ChildProcess(number, clock.now_s()) for number in range(1, count + 1)]
        self._signals = 0
        self._stopping = self._done = False
        self._code = 0

    def run(self) -> int:
        """Run until every child has ended for good; return the exit code for all of them."""
        with _signal_socket() as signals:
            self._start_due()
            while self._running() or self._due():
                for number in _numbers(signals, self._pipes(), self._pause_s()):
                    self._on_signal(number)
                self._listen()
                self._watch.tick()
                if self._signals >= _FORCING:
                    return INTERRUPTED
                self._collect_ended()
                self._start_due()
        return self._code

    def _running(self) -> list["Popen[bytes]"]:
        return [child.process for child in self._children if child.process is not None]

    def _due(self) -> list[float]:
        return [child.due_at_s for child in self._children if child.due_at_s is not None]

    def _pause_s(self) -> float:
        now_s = self._clock.now_s()
        pauses_s = [max(0.0, due_at_s - now_s) for due_at_s in self._due()]
        return min([self._watch.tick_s, *pauses_s])

    def _pipes(self) -> list[int]:
        pipes = [pipe for child in self._children for pipe in (child.report, child.errors)]
        return [pipe.descriptor for pipe in pipes if pipe is not None and pipe.open]

    def _listen(self) -> None:
        """Take in what the children said and wrote."""
        for child in self._children:
            if child.report is not None and child.report.open:
                self._hear(child, child.report.lines())
            if child.errors is not None and child.errors.open:
                self._show(child.errors.lines())

    def _hear(self, child: _ChildProcess, lines: Sequence[bytes]) -> None:
        for line in lines:
            words = {word for word in Word if word.value in line}
            if len(line) <= len(words):
                child.words |= words
            else:
                self._watch.take_message(line)

    def _show(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            self._watch.show_line(line)

    def _start_due(self) -> None:
        now_s = self._clock.now_s()
        for child in self._children:
            if child.due_at_s is not None and child.due_at_s <= now_s:
                child.started_at_s, child.due_at_s = now_s, None
                self._start(child)

    def _start(self, child: _ChildProcess) -> None:
        """Start a child.

        A temporary lack of processes or memory, or a program file that is being replaced, ends no
        other child.
        """
        child.words = set()
        try:
            with ExitStack() as closing:
                child.report, words = _pipe(closing)
                errors = None
                if self._watch.takes_errors:
                    child.errors, errors = _pipe(closing)
                child.process = child_process.start(
                    self._command(child.number, words), stderr=errors, keep=(words,)
                )
        except OSError as error:
            self._close(child)
            self._schedule_restart(child, f"cannot be started: {error.strerror or error}")
            return
        log.info("agent %d started, process %d", child.number, child.process.pid)

    def _close(self, child: _ChildProcess) -> None:
        """Take in the last that an ended child said and wrote."""
        if child.report is not None:
            self._hear(child, child.report.close())
        if child.errors is not None:
            self._show(child.errors.close())
        child.report = child.errors = None

    def _on_signal(self, number: int) -> None:
        if number in rereads():
            self._forward_reread(number)
        if number not in stops():
            return
        self._signals += 1
        if self._signals < _FORCING:
            log.info(
                "signal %d of %d is forwarded to %s",
                self._signals,
                _FORCING,
                number_of(len(self._running()), "agent"),
            )
        self._stop(signal.SIGTERM if self._signals < _FORCING else signal.SIGKILL)

    def _forward_reread(self, number: int) -> None:
        """Let every child read its settings again."""
        running = self._running()
        log.info("the settings are read again by %s", number_of(len(running), "agent"))
        for process in running:
            os.kill(process.pid, number)

    def _stop(self, number: signal.Signals) -> None:
        """Signal every child, and restart none.

        SIGTERM is sent for all stop signals, because agents that are still starting end silently on
        it.
        """
        self._stopping = True
        for child in self._children:
            child.due_at_s = None
        for process in self._running():
            os.kill(process.pid, number)

    def _collect_ended(self) -> None:
        """Handle every child that has ended, and ignore other processes that process 1 collects."""
        while (ended := _ended()) is not None:
            pid, code = ended
            for child in self._children:
                if child.process is not None and child.process.pid == pid:
                    child.process.returncode, child.process = code, None
                    self._close(child)
                    self._follow_end(child, code, frozenset(child.words))

    def _follow_end(self, child: _ChildProcess, code: int, words: frozenset[Word]) -> None:
        """Decide whether an ended child is restarted.

        A handler may have ended the process, with any exit code.
        """
        cut_short = Word.BEGAN in words and words.isdisjoint({Word.DONE, Word.ENDED})
        if self._stopping:
            self._keep_bad_code(child, DocllmError.exit_code if cut_short and code == 0 else code)
        elif self._until_done and Word.DONE in words and code in _DONE:
            log.info("agent %d is done", child.number)
            self._code = self._code or code
            self._restart_none()
        elif cut_short and code >= 0:
            self._schedule_restart(child, f"{_how_ended(code)} while it still had work")
        elif code in _NO_RESTART:
            log.error(
                "agent %d ended with %d, and a restart would not help: stopping all agents",
                child.number,
                code,
                extra={"code": Code.AGENT_ENDED},
            )
            self._code = code
            self._stop(signal.SIGTERM)
        else:
            self._schedule_restart(child, _how_ended(code))

    def _keep_bad_code(self, child: _ChildProcess, code: int) -> None:
        """Keep the first bad exit code of a drain.

        SIGTERM ends a child that had not yet begun, which does no harm.
        """
        if code not in (0, -signal.SIGTERM):
            log.error(
                "agent %d %s", child.number, _how_ended(code), extra={"code": Code.AGENT_ENDED}
            )
            self._code = self._code or (code if code > 0 else DocllmError.exit_code)

    def _restart_none(self) -> None:
        """Restart no child from now on: one agent reported that the group's work is done.

        The others will report it too.
        """
        self._done = True
        for child in self._children:
            child.due_at_s = None

    def _schedule_restart(self, child: _ChildProcess, reason: str) -> None:
        if self._done:
            log.warning(
                "agent %d %s after the work was done",
                child.number,
                reason,
                extra={"code": Code.AGENT_ENDED},
            )
            return
        now_s = self._clock.now_s()
        is_well = now_s - child.started_at_s >= self._backoff.well_after_s
        child.failures = 1 if is_well else child.failures + 1
        wait_s = self._backoff.wait_s(child.failures, self._jitter())
        child.due_at_s = now_s + wait_s
        log.warning(
            "agent %d %s; it starts again in %.1f s",
            child.number,
            reason,
            wait_s,
            extra={"code": Code.AGENT_ENDED},
        )


def _pipe(closing: ExitStack) -> tuple[LinePipe, int]:
    """Return the reading end of a pipe, and its writing end, which is closed with the stack."""
    reads, writes = os.pipe()
    closing.callback(os.close, writes)
    return LinePipe(reads), writes


def _how_ended(code: int) -> str:
    if code == FROZEN:
        return f"ended with {code}, because a library held the interpreter's lock without end"
    if code >= 0:
        return f"ended with {code}"
    # Most real-time signals have no name.
    names = {number.value: number.name for number in signal.Signals}
    return f"was ended by {names.get(-code, f'signal {-code}')}"


def _ended() -> tuple[int, int] | None:
    """Return the pid and exit code (negative: signal) of an ended child process, or None."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


@contextmanager
def _signal_socket() -> Iterator[socket.socket]:
    """Yield a socket that delivers the number of each signal that arrives while the block runs."""
    signals, writer = socket.socketpair()
    writer.settimeout(0)
    before = {
        number: signal.signal(number, lambda *_: None)
        for number in (*stops(), *rereads(), signal.SIGCHLD)
    }
    previous_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield signals
    finally:
        signal.set_wakeup_fd(previous_fd)
        for number, handler in before.items():
            signal.signal(number, handler)
        writer.close()
        signals.close()


def _numbers(signals: socket.socket, pipes: Sequence[int], timeout_s: float) -> bytes:
    """Return the signals that arrived; wait for one, or for a child's words, until the timeout."""
    signals_fd = signals.fileno()
    ready, _, _ = select.select([signals_fd, *pipes], [], [], timeout_s)
    return signals.recv(4096) if signals_fd in ready else b""
