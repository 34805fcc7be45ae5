"""Ends a process whose drain does not end, and writes where it hangs.

No task is lost by this: leases expire and the tasks run again. An agent that is done does not wait
for threads and coroutines that handlers left running.
"""

import asyncio
import faulthandler
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from docllm.schemas.codes import Code
from docllm.schemas.errors import DocllmError
from docllm.schemas.text.wording import one_line

log = logging.getLogger(__name__)

FROZEN_S = 5.0
THREADS_S = 5.0
# Beyond the drain's own limit: to leave the groups, settle and publish a last time, and close.
GRACE_S = 60.0


def end_after(limit_s: float, loop: asyncio.AbstractEventLoop) -> None:
    """End this process with the exit code of an internal error if it still runs after `limit_s`.

    A client library that waits while it holds the interpreter's lock stops all our threads,
    including this timer's. In that case faulthandler ends the process with exit code 1.
    """
    faulthandler.dump_traceback_later(limit_s + FROZEN_S, exit=True)
    _start(threading.Timer(limit_s, _end, (limit_s, loop)))


def leave_after(code: Callable[[], int], limit_s: float | None = None) -> threading.Timer:
    """End this process with `code` if it still exists after `limit_s` seconds.

    Call it when the process has nothing more to do. Without `limit_s`, the limit is THREADS_S.
    """
    timer = threading.Timer(THREADS_S if limit_s is None else limit_s, _leave, (code,))
    _start(timer)
    return timer


def _start(timer: threading.Timer) -> None:
    timer.name = "drain-watchdog"
    timer.daemon = True
    timer.start()


def _leave(code: Callable[[], int]) -> None:
    try:
        names = [
            thread.name
            for thread in threading.enumerate()
            if thread is not threading.main_thread() and not thread.daemon
        ]
        log.warning(
            "functions of handlers still run, and the agent does not wait for them; threads that "
            "are left: %s",
            one_line(", ".join(names)) or "none",
            extra={"code": Code.HANDLER_GOES_ON},
        )
        sys.stderr.flush()
    finally:
        os._exit(code())


def _end(limit_s: float, loop: asyncio.AbstractEventLoop) -> None:
    try:
        sys.stderr.write(
            f"error: the drain has not ended after {limit_s:.0f} s; "
            "leases end by themselves and the tasks run again\n"
        )
        for task in asyncio.all_tasks(loop):
            sys.stderr.write(f"{task.get_name()} {task.get_coro()}\n{_stack(task)}")
        faulthandler.dump_traceback(all_threads=True)
        sys.stderr.flush()
    finally:
        os._exit(DocllmError.exit_code)


def _stack(task: "asyncio.Task[Any]") -> str:
    # The task's own print_stack fails on a frame that is between two lines.
    frames = ((frame, frame.f_lineno) for frame in task.get_stack(limit=8))
    return "".join(traceback.StackSummary.extract(frames).format())
