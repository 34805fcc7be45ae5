"""A parent over children that are tiny scripts: signals, restarts, exit codes, no orphan."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from docllm.agent.process.supervisor import Backoff, Supervisor
from docllm.agent.reporting.group_watch import GroupWatch
from docllm.agent.reporting.views import View
from docllm.schemas.runtime.clock import SystemClock

ROOT = Path(__file__).parents[4]
PATIENCE_S = 60.0

PARENT = """
import logging, sys
from docllm.agent.process.supervisor import Backoff, Supervisor
from docllm.schemas.runtime.clock import SystemClock
logging.basicConfig(level="INFO", format="%(message)s")
child, count, until_done = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "until-done"
command = lambda number, report: [sys.executable, "-c", child, str(number), str(report)]
backoff = Backoff(float(sys.argv[4]), float(sys.argv[4]), 60)
class Watching:
    takes_errors, tick_s = sys.argv[5] == "watching", 0.05
    take_message = staticmethod(lambda message: print("message", message.decode(), flush=True))
    show_line = staticmethod(lambda line: print("error", line.decode(), flush=True))
    tick = staticmethod(lambda: None)
supervisor = Supervisor(
    command=command, count=count, until_done=until_done,
    clock=SystemClock(), jitter=lambda: 0.0, backoff=backoff, watch=Watching(),
)
sys.exit(supervisor.run())
"""
# Makes orphans this process's children, as for process 1 of a container.
ADOPT = "import ctypes; ctypes.CDLL(None).prctl(36, 1)"
# A terminal controls this process.
TERMINAL = "from docllm.agent.process import signals; signals.has_terminal = lambda: True"
# A child's first lines: it knows its number, says that it runs, and answers each SIGTERM with a
# line. `tell` reports to its parent, as an agent does.
CHILD = """
import os, signal, sys, time
from docllm.agent.process.child_process import Word
number = int(sys.argv[1])
tell = lambda word: os.write(int(sys.argv[2]), word.value)
say = lambda text: os.write(1, f"{text} {number} {os.getpid()}\\n".encode())
told = []
signal.signal(signal.SIGTERM, lambda *_: (told.append(1), say("told")))
say("runs")
def life():
    with open(f"lives{number}", "ab", 0) as lives:
        lives.write(b"x")
        return lives.tell()
def until(true, *given):
    while not true(*given):
        time.sleep(0.01)
def until_told(times=1):
    until(lambda: len(told) >= times)
"""


class Family:
    """A parent with its children. Their output is read from a file, so no writer blocks."""

    def __init__(
        self,
        folder: Path,
        child: str,
        count: int = 2,
        *,
        until_done: bool = False,
        adopts: bool = False,
        backoff: str = "0.05",
        watches: bool = False,
        terminal: bool = False,
    ) -> None:
        self._out, self._err = folder / "out", folder / "err"
        command = [
            sys.executable,
            "-c",
            ADOPT * adopts + TERMINAL * terminal + PARENT,
            CHILD + child,
            str(count),
            "until-done" if until_done else "-",
            backoff,
            "watching" if watches else "-",
        ]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.parent = subprocess.Popen(
                command,
                stdout=out,
                stderr=err,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )

    def lines(self, word: str) -> list[list[str]]:
        return [
            line.split()[1:] for line in self._out.read_text().splitlines() if line.startswith(word)
        ]

    def until(self, true: Callable[[], object], what: str) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < end_s, (
                f"waited for {what}: {self._out.read_text()}{self._err.read_text()}"
            )
            time.sleep(0.01)

    def until_said(self, word: str, times: int) -> None:
        self.until(lambda: len(self.lines(word)) >= times, f"{times} x {word}")

    def signal(self, number: signal.Signals) -> None:
        self.parent.send_signal(number)

    def code(self) -> int:
        try:
            return self.parent.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.log) from None

    @property
    def log(self) -> str:
        return self._err.read_text()

    @property
    def pids(self) -> list[int]:
        return [int(pid) for _, pid in self.lines("runs")]

    def close(self) -> None:
        self.parent.kill()
        self.parent.wait()
        self.until(lambda: not any(map(alive, self.pids)), "the children to end with their parent")


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Callable[..., Family]]:
    """Return a function that starts a family; no process outlives the test."""
    started: list[Family] = []

    def start(*given: Any, **options: Any) -> Family:
        started.append(Family(tmp_path, *given, **options))
        return started[-1]

    yield start
    for program in started:
        program.close()


Start = Callable[..., Family]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# ---- the end of the work


def test_done_children_are_not_started_again(family: Start) -> None:
    """With --until-done, children that end with 0 are not restarted; the parent ends with 0."""
    supervised = family("tell(Word.DONE)\nsys.exit(0)", 3, until_done=True)

    assert supervised.code() == 0
    assert sorted(number for number, _ in supervised.lines("runs")) == ["1", "2", "3"]


def test_child_that_leaves_is_started_again(family: Start) -> None:
    """Without --until-done, a child that ends with 0 is restarted like one that failed."""
    supervised = family("if number == 1: sys.exit(0)\nuntil_told()")

    supervised.until(
        lambda: [number for number, _ in supervised.lines("runs")].count("1") >= 3, "three lives"
    )
    supervised.signal(signal.SIGTERM)

    assert supervised.code() == 0


@pytest.mark.parametrize(
    "end",
    [
        "os.kill(os.getpid(), 9)",
        "os.kill(os.getpid(), 40)",
        "sys.exit(3)",
        "sys.exit(5)",
        "raise ValueError",
    ],
)
def test_dead_child_is_started_again(family: Start, end: str) -> None:
    """A child that was killed or failed is restarted under its number; the others go on."""
    supervised = family(f"if number == 2 and life() < 3: {end}\nuntil_told()", until_done=True)

    supervised.until_said("runs", 4)
    supervised.signal(signal.SIGTERM)

    assert supervised.code() == 0
    assert sorted(number for number, _ in supervised.lines("runs")) == ["1", "2", "2", "2"]
    assert "starts again in" in supervised.log


def test_a_child_that_is_dead_already_is_not_waited_for(family: Start) -> None:
    """Once a child saw that the work is done, a child that keeps failing is not awaited."""
    supervised = family(
        "if number == 2: sys.exit(3)\ntime.sleep(0.3)\ntell(Word.DONE)", until_done=True
    )

    assert supervised.code() == 0


def test_children_that_are_done_with_dead_tasks_are_not_started_again(family: Start) -> None:
    """With --fail-on-dead, children that end with 1 are done, and the parent ends with 1."""
    supervised = family("tell(Word.BEGAN)\ntell(Word.DONE)\nsys.exit(1)", 2, until_done=True)

    assert supervised.code() == 1
    assert sorted(number for number, _ in supervised.lines("runs")) == ["1", "2"]


@pytest.mark.parametrize("code", [0, 1, 2, 4])
def test_an_exit_code_in_the_middle_of_the_work_proves_nothing(family: Start, code: int) -> None:
    """An exit code in the middle of the work proves nothing: a handler may have caused it.

    The work is not done, nor is a restart hopeless.
    """
    supervised = family(
        f"tell(Word.BEGAN)\nif number == 2 and life() < 3: os._exit({code})\nuntil_told(1)\n"
        "tell(Word.ENDED)",
        until_done=True,
    )

    supervised.until_said("runs", 4)
    supervised.signal(signal.SIGTERM)

    assert supervised.code() == 0
    assert f"agent 2 ended with {code} while it still had work; it starts again" in supervised.log


def test_a_child_that_was_drained_is_not_done(family: Start) -> None:
    """A child that somebody drained has not finished the group's work."""
    supervised = family(
        "tell(Word.BEGAN)\nif number == 1 and life() < 2:\n    tell(Word.ENDED)\n"
        "    sys.exit(0)\nuntil_told()\ntell(Word.ENDED)",
        until_done=True,
    )

    supervised.until_said("runs", 3)
    supervised.signal(signal.SIGTERM)

    assert supervised.code() == 0


def test_a_handler_that_ends_its_agent_during_a_drain_is_reported(family: Start) -> None:
    """A handler that ends its agent during a drain is reported: running tasks were lost."""
    supervised = family(
        "tell(Word.BEGAN)\nuntil_told()\nif number == 2: os._exit(0)\ntell(Word.ENDED)"
    )
    supervised.until_said("runs", 2)

    supervised.signal(signal.SIGTERM)

    assert supervised.code() == 5


@pytest.mark.parametrize("code", [2, 4])
def test_hopeless_child_ends_all(family: Start, code: int) -> None:
    """Usage and unsafe state are not fixed by a restart: the others drain.

    The parent ends with that code.
    """
    supervised = family(
        "life()\nif number == 2:\n    until(os.path.exists, 'lives1')\n"
        f"    sys.exit({code})\nuntil_told()"
    )

    assert supervised.code() == code
    assert [number for number, _ in supervised.lines("told")] == ["1"]
    assert len(supervised.pids) == 2


# ---- signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_reaches_each_child_once(family: Start, number: signal.Signals) -> None:
    """One signal to the parent is one signal to each child; all drain, exit code 0."""
    supervised = family("until_told()\ntime.sleep(0.2)", 3, terminal=True)
    supervised.until_said("runs", 3)

    supervised.signal(number)

    assert supervised.code() == 0
    assert sorted(child for child, _ in supervised.lines("told")) == ["1", "2", "3"]


def test_without_a_terminal_sighup_makes_each_child_read_its_settings(family: Start) -> None:
    """The signal is passed on as it is, as often as it comes, and ends nobody."""
    supervised = family(
        "signal.signal(signal.SIGHUP, lambda *_: say('rereads'))\nsay('ready')\nuntil_told()"
    )
    supervised.until_said("ready", 2)

    for times in (2, 4, 6):
        supervised.signal(signal.SIGHUP)
        supervised.until_said("rereads", times)
    supervised.signal(signal.SIGTERM)

    assert supervised.code() == 0
    assert supervised.log.count("the settings are read again by 2 agents") == 3
    assert "signal 1 of 3" in supervised.log
    assert "signal 2 of 3" not in supervised.log


def test_a_closed_terminal_stops_no_program_that_ignores_it(family: Start) -> None:
    """Under `nohup`, parent and children ignore the end of the terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        supervised = family(
            "print(signal.getsignal(signal.SIGHUP).name, flush=True)\nuntil_told()", terminal=True
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    supervised.until_said("runs", 2)
    supervised.until_said("SIG_IGN", 2)

    supervised.signal(signal.SIGHUP)
    supervised.signal(signal.SIGTERM)

    assert supervised.code() == 0
    assert "signal 1 of 3" in supervised.log
    assert "signal 2 of 3" not in supervised.log


def test_ctrl_c_reaches_the_parent_alone(family: Start) -> None:
    """Ctrl-C on a terminal reaches only the parent, which signals each child once.

    The terminal signals the whole process group, and the children are not in it.
    """
    supervised = family(
        "print(os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid(), flush=True)\nuntil_told()"
    )
    supervised.until_said("True True", 2)

    supervised.signal(signal.SIGINT)

    assert supervised.code() == 0
    assert len(supervised.lines("told")) == 2


def test_second_signal_is_forwarded_too(family: Start) -> None:
    """A second signal reaches the children as a second signal."""
    supervised = family("until_told(2)")
    supervised.until_said("runs", 2)

    supervised.signal(signal.SIGTERM)
    supervised.until_said("told", 2)
    supervised.signal(signal.SIGTERM)

    assert supervised.code() == 0
    assert len(supervised.lines("told")) == 4


def test_third_signal_ends_everything(family: Start) -> None:
    """A third signal kills children that do not react, and ends the parent with 130."""
    supervised = family("until_told(99)")
    supervised.until_said("runs", 2)

    for times in (2, 4):
        supervised.signal(signal.SIGINT)
        supervised.until_said("told", times)
    supervised.signal(signal.SIGINT)

    assert supervised.code() == 130
    supervised.until(lambda: not any(map(alive, supervised.pids)), "the children to be gone")


@pytest.mark.parametrize(("end", "code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 5)])
def test_a_failed_drain_is_reported(family: Start, end: str, code: int) -> None:
    """A child that could not settle gives its exit code to the parent.

    A child that was killed while it drained counts as 5.
    """
    supervised = family(f"until_told()\nif number == 2: {end}")
    supervised.until_said("runs", 2)

    supervised.signal(signal.SIGTERM)

    assert supervised.code() == code


def test_signal_while_a_child_waits_for_its_restart(family: Start) -> None:
    """A drain does not restart a child that waits for its restart."""
    supervised = family("if number == 2: sys.exit(3)\nuntil_told()", backoff="60")
    supervised.until(
        lambda: "starts again" in supervised.log and len(supervised.lines("runs")) == 2,
        "a long wait",
    )

    supervised.signal(signal.SIGTERM)

    assert supervised.code() == 0
    assert [number for number, _ in supervised.lines("told")] == ["1"]


# ---- other ends


def test_killed_parent_takes_its_children_along(family: Start) -> None:
    """SIGKILL of the parent ends the children, even frozen ones."""
    supervised = family("until_told(99)", 3)
    supervised.until_said("runs", 3)
    os.kill(supervised.pids[0], signal.SIGSTOP)

    supervised.signal(signal.SIGKILL)

    supervised.until(lambda: not any(map(alive, supervised.pids)), "the children to be gone")


def test_orphans_are_reaped(family: Start) -> None:
    """As process 1 of a container, the parent reaps a dead agent's children.

    They leave no zombie, and do not count as agents.
    """
    supervised = family(
        "if os.fork() == 0:\n    time.sleep(0.3)\n    say('orphan')\n    os._exit(2)\nsys.exit(3)",
        1,
        adopts=True,
    )

    supervised.until_said("orphan", 2)
    orphan = int(supervised.lines("orphan")[0][1])

    supervised.until(lambda: not alive(orphan), "the orphan to be reaped")
    assert supervised.parent.poll() is None


# ---- what the children tell


def test_messages_and_errors_reach_the_watch_while_a_child_runs(family: Start) -> None:
    """Messages and the lines of stderr are passed on at once, and the last ones at the end."""
    supervised = family(
        'os.write(int(sys.argv[2]), b"[1, 2]\\n")\n'
        'os.write(2, b"trouble\\n")\nuntil_told()\n'
        'os.write(int(sys.argv[2]), b"[3, 4]\\n")\nos.write(2, b"last")\ntell(Word.ENDED)',
        1,
        watches=True,
    )

    supervised.until_said("message", 1)
    supervised.until_said("error", 1)
    supervised.signal(signal.SIGTERM)

    assert supervised.code() == 0
    assert supervised.lines("message") == [["[1,", "2]"], ["[3,", "4]"]]
    assert supervised.lines("error") == [["trouble"], ["last"]]


def test_many_messages_do_not_hide_the_words(family: Start) -> None:
    """A child that told a lot is done all the same."""
    supervised = family(
        'for n in range(5000): os.write(int(sys.argv[2]), b"{message %d}\\n" % n)\n'
        "tell(Word.BEGAN)\ntell(Word.DONE)\nsys.exit(0)",
        1,
        until_done=True,
    )

    assert supervised.code() == 0
    assert len(supervised.lines("message")) == 5000


def test_wait_doubles_up_to_its_limit() -> None:
    """The wait is 1, 2, 4 ... 60 s; chance adds up to a fifth; failures can be any number."""
    waits = [Backoff().wait_s(failures, 0.0) for failures in (1, 2, 3, 6, 7, 1000)]

    assert waits == [1, 2, 4, 32, 60, 60]
    assert Backoff().wait_s(1, 1.0) == pytest.approx(1.2)


def test_a_start_that_fails_is_tried_again(tmp_path: Path) -> None:
    """A failed start, without a free process or with a replaced program, ends no other child."""
    command = [[str(tmp_path / "agent")], [sys.executable, "-c", ""]]
    began_s = SystemClock().now_s()
    both = Supervisor(
        command=lambda number, _report: command[number - 1],
        count=2,
        until_done=False,
        clock=SystemClock(),
        jitter=lambda: 0.0,
        watch=GroupWatch(view=View(lambda *_: None), clock=SystemClock(), group="g", priced=()),
    )

    both._start_due()

    (due_at_s,) = both._due()
    assert due_at_s >= began_s + 1.0
    (other,) = both._running()
    assert other.wait() == 0
