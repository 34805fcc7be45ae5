"""The rehearsal LLM as a child process of an agent: started for it, ended with it."""

import asyncio
import ctypes
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from schemas.errors import ConfigError, DocllmError

_PR_SET_PDEATHSIG = 1
_START_S = 30.0


@asynccontextmanager
async def rehearsal_child(options: str) -> AsyncIterator[str]:
    """Start the server; give its base URL; end it. It has a session of its own, so that Ctrl-C reaches the agent alone."""
    command = [sys.executable, "-m", "agent", "rehearsal-llm", *shlex.split(options)]
    child = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, start_new_session=True, preexec_fn=_die_with_parent if sys.platform == "linux" else None
    )
    try:
        if child.stdout is None:
            raise DocllmError("the rehearsal LLM has no output")
        line = await asyncio.wait_for(child.stdout.readline(), _START_S)
        if not line.startswith(b"http"):
            raise ConfigError("the rehearsal LLM did not start; look at --rehearsal-options, try: python -m agent rehearsal-llm")
        yield line.decode().strip()
    finally:
        if child.returncode is None:
            child.terminate()
            await child.wait()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
