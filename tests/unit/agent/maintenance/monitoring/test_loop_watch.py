"""The task that blocks the event loop is named, and no machine's fault is blamed on it."""

import asyncio
import threading
from typing import Any, cast

import pytest

from docllm.agent.maintenance.monitoring.loop_watch import (
    EVERY_S,
    LATE_S,
    Glance,
    LoopWatch,
    _Loop,
    blocked_between_s,
)
from docllm.agent.process.use import ThreadUse
from docllm.schemas.agent_report import BlockReport
from tests.support.clock import HandClock

WORK = BlockReport(7, "night", "k7", "invoice")
TASK = cast("asyncio.Task[Any]", object())
OTHER = cast("asyncio.Task[Any]", object())


def used(cpu_s: float = 0.0, ready_s: float = 0.0, faults: int = 0) -> ThreadUse:
    return ThreadUse(cpu_s, ready_s, faults)


@pytest.mark.parametrize(
    ("elapsed_s", "use", "blocked_s"),
    [
        (0.5, used(), 0.5),  # time.sleep
        (0.5, used(cpu_s=0.5), 0.5),  # a loop that computes
        (0.5, used(cpu_s=0.1, ready_s=0.4), 0.1),  # the same without a free processor
        (25.0, used(), LATE_S),  # SIGSTOP, or a suspended machine
        (25.0, used(cpu_s=24.0), 24.0),  # a regular expression keeps the interpreter's lock
        (25.0, used(cpu_s=4.0, ready_s=21.0), 4.0),
        (0.5, used(cpu_s=0.01, faults=500), 0.01),  # memory comes back from the disk
        (25.0, None, LATE_S),
        (0.5, None, 0.5),
    ],
)
def test_only_time_that_the_code_blocked_the_loop_counts(
    elapsed_s: float, use: ThreadUse | None, blocked_s: float
) -> None:
    """A machine that stands still, swaps or has no free processor is no handler's fault."""
    now = Glance(100.0 + elapsed_s, use)

    assert blocked_between_s(Glance(100.0, used()), now) == pytest.approx(blocked_s)


class FakeLoop:
    """A loop that answers or not as the test says, at each check."""

    answered = False
    task: object = None
    cpu_s: float | None = None

    def ask(self) -> None:
        self.answered = False

    def current_task(self) -> object:
        return self.task

    def stack(self) -> Any:
        return ()

    def use(self) -> ThreadUse | None:
        return None if self.cpu_s is None else used(self.cpu_s)


def watched(
    caplog: pytest.LogCaptureFixture, *looks: object
) -> tuple[list[str], list[BlockReport | None]]:
    """Return what is logged and reported if these tasks run at the looks; `...` answers."""
    clock = HandClock()
    watch = LoopWatch(clock=clock)
    loop = FakeLoop()
    shown: list[BlockReport | None] = []
    left = iter(looks)

    class Stopped(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            shown.append(watch.blocked())
            loop.task = next(left, None)
            loop.answered = loop.task is ...
            clock.at_s += timeout or 0
            return loop.task is None

    watch._stopped = Stopped()
    caplog.clear()
    watch._watch(cast("Any", loop), lambda task: WORK if task is TASK else None)
    return [record.getMessage() for record in caplog.records], shown[1:]


def test_a_blocking_task_is_named_after_two_seconds_and_at_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A line at 2 s, at 10 s and each minute, then one with the whole time."""
    lines, shown = watched(caplog, *[TASK] * int(130 / EVERY_S), ..., ...)

    who = "by task k7 of batch night, type invoice, at "
    assert [line.partition(";")[0] for line in lines] == [
        *(f"the event loop has been blocked for {lasts} s {who}" for lasts in (2, 10, 60, 120)),
        "the event loop runs again",
    ]
    assert "asyncio.to_thread" in lines[0]
    assert lines[-1].endswith(f"it was blocked for 130 s {who}")
    assert shown[2] is None
    assert shown[3] is not None
    assert (shown[3].task, shown[3].blocked_s) == (7, 2.0)
    assert shown[-1] is None


def test_a_short_stall_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """Stalls that are not in a row are not added up."""
    lines, shown = watched(caplog, TASK, TASK, TASK, ..., TASK, TASK, TASK, ...)

    assert lines == []
    assert shown == [None] * 8


def test_tasks_that_take_turns_block_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A busy loop without a free processor is seen in another task at each look."""
    lines, _ = watched(caplog, *[TASK, OTHER] * 20)

    assert lines == []


def test_code_that_is_no_tasks_is_shown_by_its_place(caplog: pytest.LogCaptureFixture) -> None:
    """A callback, or a part of docllm, blocks without a task of a batch."""
    lines, shown = watched(caplog, *[OTHER] * 5)

    assert lines[0].startswith("the event loop has been blocked for 2 s at ")
    assert shown[-1] == BlockReport(blocked_s=2.5)


@pytest.mark.parametrize(("cpu_s", "is_blocked"), [(11.0, True), (0.1, False)])
def test_code_that_stops_the_watch_too_is_noticed_afterwards(
    cpu_s: float, *, is_blocked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A regular expression keeps the interpreter; a process that was stopped used no processor."""
    clock, loop = HandClock(), FakeLoop()
    watch, loop.cpu_s = LoopWatch(clock=clock), 0.0

    class Delayed(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            is_over = loop.cpu_s != 0
            loop.answered, loop.cpu_s, clock.at_s = True, cpu_s, clock.at_s + 11.0
            return is_over

    watch._stopped = Delayed()
    watch._watch(cast("Any", loop), lambda _task: None)

    texts = [record.getMessage().partition(" by code")[0] for record in caplog.records]
    assert texts == (["the event loop was blocked for 11 s"] if is_blocked else [])


def test_the_lag_of_the_loop_is_that_of_its_last_answer_or_of_the_one_awaited() -> None:
    """A loop that is blocked has a lag that grows, though it has not answered."""
    clock = HandClock()

    async def run() -> None:
        loop = _Loop(asyncio.get_running_loop(), clock=clock)
        loop.ask()
        clock.at_s += 3
        assert loop.lag_s(clock.at_s) == 3
        await asyncio.sleep(0)
        clock.at_s += 10
        assert loop.lag_s(clock.at_s) == 3
        loop.ask()
        assert loop.lag_s(clock.at_s + 1) == 3
        assert loop.lag_s(clock.at_s + 5) == 5

    asyncio.run(run())


def test_a_real_loop_is_watched_and_left() -> None:
    """The watch's thread ends with it, and a loop that answers is not blocked."""
    watch = LoopWatch(clock=HandClock())

    async def run() -> None:
        running = asyncio.create_task(watch.run(lambda _task: None))
        await asyncio.sleep(0)
        assert "loop-watch" in {thread.name for thread in threading.enumerate()}
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(run())

    assert "loop-watch" not in {thread.name for thread in threading.enumerate()}
    assert watch.blocked() is None
