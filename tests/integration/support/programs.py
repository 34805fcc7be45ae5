"""docllm's programs as child processes, started as a person would start them.

The module knows arguments, environment, signals, exit codes and output.
"""

import atexit
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from urllib.request import Request, urlopen

import orjson

from tests.integration.support.fork_server import Fork, ForkServer, Start
from tests.invariants.evidence import Call

ROOT = Path(__file__).parents[3]
POLL_S, LATE_POLL_S, MAX_POLL_S = 0.05, 0.25, 1.0
PATIENCE_S = 240.0
FORKS = sys.platform == "linux" and not os.environ.get("DOCLLM_TEST_LONG")


class Program:
    """A running `python -m ...`, or a fork that runs the same; its output goes to two files.

    The programs `agent` and `producer` are started as people do: as commands of `docllm`.
    """

    def __init__(
        self, arguments: Sequence[str], *, folder: Path, environ: Mapping[str, str], name: str
    ) -> None:
        self.name = name
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        self._process = self._started(_typed(arguments), folder, environ)
        self.pid = self._process.pid

    def _started(
        self, arguments: Sequence[str], folder: Path, environ: Mapping[str, str]
    ) -> Fork | subprocess.Popen[bytes]:
        if FORKS and (server := fork_server()).fits(environ):
            return server.start(Start(arguments, folder, environ, self._out, self._err))
        dies_with_parent = (
            [shutil.which("setpriv") or "setpriv", "--pdeathsig", "KILL", "--"]
            if sys.platform == "linux"
            else []
        )
        with self._out.open("wb") as out, self._err.open("wb") as err:
            command = [*dies_with_parent, sys.executable, "-m", *arguments]
            return subprocess.Popen(
                command,
                cwd=folder,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,  # the tests' own terminal is none of a program's
            )

    @property
    def out(self) -> str:
        """Return its output on stdout so far."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """Return its output on stderr so far."""
        return self._err.read_text()

    @property
    def running(self) -> bool:
        """Return whether it still runs."""
        return self.code is None

    @property
    def code(self) -> int | None:
        """Return its exit code, None while it runs."""
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Return its exit code; fail the test if it does not end in time."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} did not end within {timeout_s:.0f} s; {self.tail()}"
            ) from None

    def end(self) -> None:
        """Kill it if it runs, and wait for its end."""
        if self.running:
            self._process.kill()
        self._process.wait()

    def tail(self) -> str:
        """Return the end of its output."""
        return f"its last words:\n{self.out[-500:]}{self.err[-3000:]}"


def _typed(arguments: Sequence[str]) -> Sequence[str]:
    match arguments:
        case ["agent", *_]:
            return ["docllm", *arguments]
        case ["producer", *words]:
            return ["docllm", *words]
    return arguments


class RehearsalLLM(Program):
    """The rehearsal LLM on a free port, with a log of every call."""

    def __init__(
        self, *options: str, folder: Path, environ: Mapping[str, str], name: str = "llm"
    ) -> None:
        self._log = folder / f"{name}.jsonl"
        super().__init__(
            ["agent", "rehearsal-llm", "--log", str(self._log), *options],
            folder=folder,
            environ=environ,
            name=name,
        )
        until(lambda: self.out.endswith("/v1\n") or not self.running, f"{name} to listen")
        self.url = self.out.strip()

    def dial(self, faults: str = "") -> None:
        """Replace the faults, given in the form of `--faults`."""
        # Our own server.
        with urlopen(  # noqa: S310
            Request(self.url.replace("/v1", "/faults"), faults.encode(), method="POST"),  # noqa: S310
            timeout=10,
        ) as answer:
            assert answer.status == 200

    def calls(self) -> list[Call]:
        """Return every call so far; a call in progress has no end."""
        calls: list[Call] = []
        running: dict[str, list[int]] = {}
        for line in self._log.read_bytes().splitlines():
            event = orjson.loads(line)
            name, _, label = event["id"].partition("#")
            if event["event"] == "start":
                running.setdefault(event["id"], []).append(len(calls))
                calls.append(
                    Call(
                        name,
                        event["boot_s"],
                        start_utc_s=event["at_s"],
                        label=int(label.partition(".")[0] or 1),
                        again="." in label,
                    )
                )
            else:
                place = running[event["id"]].pop(0)
                calls[place] = replace(
                    calls[place],
                    end_s=event["boot_s"],
                    status=event["status"],
                    sent_bytes=event["bytes"],
                    tokens_in=event["tokens_in"],
                    tokens_out=event["tokens_out"],
                )
        return calls


@dataclass(frozen=True, slots=True)
class Done:
    """A program that has ended."""

    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which no variable of this process configures docllm."""
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ
    }
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **more}


@cache
def fork_server() -> ForkServer:
    """Return this process's fork server, which ends with it."""
    server = ForkServer(environment())
    atexit.register(server.close)
    return server


def pause(delay_s: float) -> None:
    """Wait for a random moment, or for the length of an outage."""
    time.sleep(delay_s)


def until(true: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait until `true` returns a true value; fail the test after the time limit.

    A function that takes long, because it runs a program, is called less often: it would use the
    core that the waited-for program needs. So does one that has been called for seconds: a ledger
    that is asked twenty times a second takes a tenth of a core.
    """
    began_s = asked_s = time.monotonic()
    end_s = began_s + timeout_s
    while not true():
        answered_s = time.monotonic()
        assert answered_s < end_s, f"waited {timeout_s:.0f} s for {what}"
        late_s = min((answered_s - began_s) / 20, LATE_POLL_S)
        time.sleep(min(max(POLL_S, late_s, 2 * (answered_s - asked_s)), MAX_POLL_S))
        asked_s = time.monotonic()


def _attempt(label: str) -> int:
    """Return the number of the attempt in a call's label, such as 2 in `2.3`, its third call."""
    return int(label.partition(".")[0] or 1)


def most_at_once(calls: list[Call]) -> int:
    """Return how many of these calls ran at the same time at most."""
    ends = [(call.end_s or call.start_s, -1) for call in calls]
    moments = sorted([(call.start_s, 1) for call in calls] + ends)
    return max(accumulate(step for _, step in moments))
