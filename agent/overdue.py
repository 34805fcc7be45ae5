"""Ends a process whose drain does not end, and says where it stands: nothing is lost by that, and nobody waits for ever."""

import asyncio
import faulthandler
import os
import sys
import threading

from schemas.errors import DocllmError

GRACE_S = 60.0  # beyond the drain's own limit: leaving the groups, the last settle, the last publishing, closing


def end_after(limit_s: float, loop: asyncio.AbstractEventLoop) -> None:
    """Let this process end with the exit code of an internal error when it is still there after `limit_s` seconds."""
    timer = threading.Timer(limit_s, _end, (limit_s, loop))
    timer.daemon = True
    timer.start()


def _end(limit_s: float, loop: asyncio.AbstractEventLoop) -> None:
    sys.stderr.write(f"error: the drain has not ended after {limit_s:.0f} s; leases end by themselves and the tasks run again\n")
    for task in asyncio.all_tasks(loop):
        task.print_stack(limit=8, file=sys.stderr)
    faulthandler.dump_traceback(all_threads=True)
    sys.stderr.flush()
    os._exit(DocllmError.exit_code)
