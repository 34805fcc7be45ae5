"""The drain watchdog: ends a process whose drain does not end, and logs where it stands.

Nothing is lost by that, and nobody waits for ever.
"""

import asyncio
import faulthandler
import os
import sys
import threading
import traceback
from typing import Any

from schemas.errors import DocllmError

FROZEN_S = 5.0
# Beyond the drain's own limit: to leave the groups, settle and publish last, and close.
GRACE_S = 60.0


def end_after(limit_s: float, loop: asyncio.AbstractEventLoop) -> None:
    """End this process with the exit code of an internal error if it still runs after `limit_s`.

    A client library that waits while it holds the interpreter's lock stops all our threads,
    including this timer's. In that case faulthandler ends the process with exit code 1.
    """
    faulthandler.dump_traceback_later(limit_s + FROZEN_S, exit=True)
    timer = threading.Timer(limit_s, _end, (limit_s, loop))
    timer.daemon = True
    timer.start()


def _end(limit_s: float, loop: asyncio.AbstractEventLoop) -> None:
    try:
        sys.stderr.write(f"error: the drain has not ended after {limit_s:.0f} s; leases end by themselves and the tasks run again\n")
        for task in asyncio.all_tasks(loop):
            sys.stderr.write(f"{task.get_name()} {task.get_coro()}\n{_stack(task)}")
        faulthandler.dump_traceback(all_threads=True)
        sys.stderr.flush()
    finally:
        os._exit(DocllmError.exit_code)


def _stack(task: "asyncio.Task[Any]") -> str:
    # The task's own print_stack fails on a frame that is between two lines.
    return "".join(traceback.StackSummary.extract((frame, frame.f_lineno) for frame in task.get_stack(limit=8)).format())
