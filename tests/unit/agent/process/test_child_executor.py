"""The executor that is a child process."""

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

import orjson
import pytest

from docllm.agent.handlers import ChildExecutor
from docllm.agent.judge import judge
from docllm.agent.ports import Reply
from docllm.agent.ports.outcome import Succeeded
from tests.support.replies import FACTS

ROOT = Path(__file__).parents[4]


def require_quiet_end(code: str) -> None:
    """Run a program; it ends at once and says nothing."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_judge_runs_in_a_child() -> None:
    """The judge has the same outcome in another process, which serves further calls."""

    async def run() -> tuple[int, object]:
        executor = ChildExecutor()
        body = orjson.dumps(
            {"choices": [{"message": {"content": "Fine."}, "finish_reason": "stop"}]}
        )
        child = await executor(os.getpid)
        outcome = await executor(partial(judge, Reply(200, {}, body), FACTS))
        executor.close()
        return child, outcome

    child, outcome = asyncio.run(run())

    assert child != os.getpid()
    assert isinstance(outcome, Succeeded)


def test_a_dead_child_is_replaced() -> None:
    """A call after the child was killed runs in a new child."""

    async def run() -> tuple[int, int]:
        executor = ChildExecutor()
        first = await executor(os.getpid)
        os.kill(first, signal.SIGKILL)
        second = await executor(os.getpid)
        executor.close()
        return first, second

    first, second = asyncio.run(run())

    assert first != second


def test_a_child_ends_with_its_agent() -> None:
    """SIGKILL of the process that has an executor ends its child too."""
    code = (
        "import asyncio, os, time; from docllm.agent.handlers import ChildExecutor; executor = "
        "ChildExecutor(); "
        "print(asyncio.run(executor(os.getpid)), flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as agent:
        assert agent.stdout is not None
        child = os.pidfd_open(int(agent.stdout.readline()))
        agent.kill()

    ended, _, _ = select.select([child], [], [], 20)
    os.close(child)

    assert ended


def test_a_child_in_the_middle_of_a_call_holds_up_no_exit() -> None:
    """A process that leaves does not wait for a child in the middle of a call."""
    code = (
        "import asyncio, time; from functools import partial; from docllm.agent.handlers import "
        "ChildExecutor\n"
        "async def run():\n"
        "    executor = ChildExecutor(); await executor(time.time)\n"
        "    call = asyncio.ensure_future(executor(partial(time.sleep, 3600))); await "
        "asyncio.sleep(0.1)\n"
        "    call.cancel(); executor.close()\n"
        "asyncio.run(run())"
    )
    require_quiet_end(code)


def test_an_exit_right_after_a_call_was_ended_says_nothing() -> None:
    """An exit right after a call was ended prints nothing.

    The interpreter's exit must find no thread of an ending child, or it would report a closed
    handle.
    """
    code = (
        "import asyncio, time; from concurrent.futures import process; from functools import "
        "partial\n"
        "from docllm.agent.handlers import ChildExecutor\n"
        "def slow(self):\n"
        "    if not self._closed:\n"
        "        time.sleep(0.2 if process._global_shutdown else 0); self._writer.send_bytes(b'')\n"
        "process._ThreadWakeup.wakeup = slow\n"
        "async def run():\n"
        "    executor = ChildExecutor(); await executor(time.time)\n"
        "    call = asyncio.ensure_future(executor(partial(time.sleep, 3600))); await "
        "asyncio.sleep(0.1)\n"
        "    call.cancel(); await asyncio.wait([call]); await executor(time.time); "
        "executor.close()\n"
        "asyncio.run(run())"
    )
    require_quiet_end(code)


def test_a_call_that_kills_its_child_is_an_error() -> None:
    """A reply that kills two children is not tried for ever; the executor goes on."""

    async def run() -> int:
        executor = ChildExecutor()
        with pytest.raises(BrokenProcessPool):
            await executor(partial(os._exit, 1))
        alive = await executor(os.getpid)
        executor.close()
        return alive

    assert asyncio.run(run()) > 0


def test_a_call_that_kills_its_child_harms_no_other() -> None:
    """A call that kills its child harms no other: all calls behind it get their results."""

    async def run() -> list[object]:
        executor = ChildExecutor()
        calls: list[Callable[[], object]] = [
            partial(os._exit, 1),
            *[partial(pow, number, 2) for number in range(5)],
            partial(os._exit, 1),
            partial(pow, 5, 2),
        ]
        answers = await asyncio.gather(*(executor(call) for call in calls), return_exceptions=True)
        executor.close()
        return [type(answer) if isinstance(answer, Exception) else answer for answer in answers]

    assert asyncio.run(run()) == [BrokenProcessPool, 0, 1, 4, 9, 16, BrokenProcessPool, 25]


def test_a_call_that_never_ends_holds_up_no_other() -> None:
    """A call that never ends delays no other.

    When its caller gives up, its child is ended, and a call queued behind it gets its result.
    """

    async def run() -> int:
        executor = ChildExecutor()
        await executor(os.getpid)
        endless = asyncio.ensure_future(executor(partial(time.sleep, 3600)))
        behind = asyncio.ensure_future(executor(partial(pow, 7, 2)))
        await asyncio.sleep(0)
        endless.cancel()
        answer = await asyncio.wait_for(behind, 60)
        executor.close()
        return answer

    assert asyncio.run(run()) == 49
