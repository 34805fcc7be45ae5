"""The drain watchdog ends a drain that does not end, and logs where it stood."""

import subprocess
import sys
from types import SimpleNamespace

from agent import overdue
from schemas.errors import DocllmError

STUCK = """
import asyncio
from agent import overdue

async def waits_for_ever():
    overdue.end_after(0.1, asyncio.get_running_loop())
    await asyncio.Event().wait()

asyncio.run(waits_for_ever())
"""


FROZEN = """
import asyncio, ctypes
from agent import overdue

async def holds_the_lock():
    overdue.end_after(0.1, asyncio.get_running_loop())
    ctypes.PyDLL(None).sleep(60)

overdue.FROZEN_S = 0.1
asyncio.run(holds_the_lock())
"""


def ended(code: str) -> subprocess.CompletedProcess[str]:
    """Return the exit of a program of this code, within half a minute."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)


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


def test_a_stack_between_two_lines_is_told() -> None:
    """The stack of a frame between two lines can be logged.

    A fault run found that such a stack raised an error, and that the process did not end.
    """
    frame = SimpleNamespace(f_lineno=None, f_code=_nothing.__code__, f_globals={}, f_locals={})
    task = SimpleNamespace(get_stack=lambda limit: [frame][:limit])

    assert "in _nothing" in overdue._stack(task)  # type: ignore[arg-type]


def test_a_drain_is_ended_though_nothing_can_be_told_of_it() -> None:
    done = ended(STUCK.replace("asyncio.run", "overdue._stack = None\nasyncio.run"))

    assert done.returncode == DocllmError.exit_code


def _nothing() -> None:
    """Do nothing for ever."""
