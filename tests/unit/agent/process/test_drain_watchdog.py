"""The drain watchdog ends a drain that does not end, and logs where it stood."""

import argparse
import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from docllm.agent.cli import main, parser
from docllm.agent.process import drain_watchdog
from docllm.schemas.errors import DocllmError

STUCK = """
import asyncio
from docllm.agent.process import drain_watchdog as overdue

async def waits_for_ever():
    overdue.end_after(0.1, asyncio.get_running_loop())
    await asyncio.Event().wait()

asyncio.run(waits_for_ever())
"""


FROZEN = """
import asyncio, ctypes
from docllm.agent.process import drain_watchdog as overdue

async def holds_the_lock():
    overdue.end_after(0.1, asyncio.get_running_loop())
    ctypes.PyDLL(None).sleep(60)

overdue.FROZEN_S = 0.1
asyncio.run(holds_the_lock())
"""


LEFT_BEHIND = """
import threading, time
from docllm.agent.process import drain_watchdog as overdue

threading.Thread(target=time.sleep, args=(60,)).start()
overdue.leave_after(lambda: 7, 0.1)
"""


class PanicError(BaseException):
    """What a panic of a Rust library is in Python."""


def ended(code: str) -> subprocess.CompletedProcess[str]:
    """Return the exit of a program of this code, within half a minute."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )


def test_a_drain_that_does_not_end_is_ended() -> None:
    done = ended(STUCK)

    assert done.returncode == DocllmError.exit_code
    assert "error: the drain has not ended after 0 s" in done.stderr
    assert "waits_for_ever" in done.stderr
    assert "most recent call first" in done.stderr


def test_a_process_whose_lock_is_held_is_ended_too() -> None:
    """A process whose interpreter lock is held is ended too.

    No thread of ours runs then, for example if a Kafka client waits for an answer for ever.
    """
    done = ended(FROZEN)

    assert done.returncode == 1
    assert "holds_the_lock" in done.stderr


def test_a_stack_between_two_lines_is_logged() -> None:
    """The stack of a frame between two lines can be logged.

    A fault run found that such a stack raised an error, and that the process did not end.
    """
    frame = SimpleNamespace(f_lineno=None, f_code=_nothing.__code__, f_globals={}, f_locals={})
    task = SimpleNamespace(get_stack=lambda limit: [frame][:limit])

    assert "in _nothing" in drain_watchdog._stack(task)  # type: ignore[arg-type]


def test_a_drain_is_ended_even_if_nothing_can_be_logged() -> None:
    done = ended(STUCK.replace("asyncio.run", "overdue._stack = None\nasyncio.run"))

    assert done.returncode == DocllmError.exit_code


def _nothing() -> None:
    """Stand still."""


def test_a_thread_left_behind_by_a_handler_does_not_delay_the_exit() -> None:
    """Python waits for such a thread; the work is done, and the agent's exit code says so."""
    assert ended(LEFT_BEHIND).returncode == 7


def test_nor_does_a_thread_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event loop that ends joins the threads of `asyncio.to_thread`, in 3.11 for ever."""
    left: list[int] = []
    begun, over = threading.Event(), threading.Event()
    monkeypatch.setattr(drain_watchdog, "THREADS_S", 0.0)

    def leave(code: int) -> None:
        left.append(code)
        over.set()

    monkeypatch.setattr(os, "_exit", leave)

    def block() -> None:
        begun.set()
        over.wait(30)

    async def command() -> bool:
        asyncio.get_running_loop().run_in_executor(None, block)
        return False

    main._run_loop(command(), argparse.Namespace(report=None))

    assert begun.is_set()
    assert left == [0]


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), SystemExit(0), GeneratorExit(), PanicError()]
)
def test_any_end_of_the_event_loop_is_an_internal_error(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Exit code 0 would read as done, and 1 as a task that is dead."""

    async def run(_config: object, _options: object) -> bool:
        raise error

    monkeypatch.setattr(main, "_run", run)
    monkeypatch.setattr(main, "configure_logging", lambda *_: None)
    monkeypatch.chdir(tmp_path)

    assert parser.main([]) == DocllmError.exit_code
