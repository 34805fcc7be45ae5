"""The rehearsal LLM as a child process that ends with the process that started it.

It serves one agent or several.
"""

import select
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE
from typing import IO

from docllm.agent.process import child_process
from docllm.schemas.errors import ConfigError

_START_S = 30.0


@contextmanager
def rehearsal_child(options: str) -> Iterator[str]:
    """Start the server, yield its base URL, end it.

    Raises ConfigError when the server does not start.
    """
    with child_process.start(
        child_process.program("rehearsal-llm", "--child", *_split(options)), stdout=PIPE
    ) as child:
        try:
            yield _address(child.stdout)
        finally:
            child.terminate()


def _split(options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError:
        raise ConfigError("--rehearsal-options has a quote that is not closed") from None


def _address(output: IO[bytes] | None) -> str:
    """Return the first line that the server prints.

    This blocks, so it is called before anything else runs.
    """
    line = (
        output.readline()
        if output is not None and select.select([output], [], [], _START_S)[0]
        else b""
    )
    if not line.startswith(b"http"):
        raise ConfigError(
            "the rehearsal LLM did not start; check --rehearsal-options, or try: "
            "docllm agent rehearsal-llm"
        )
    return line.decode().strip()
