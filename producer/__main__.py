"""`python -m producer`: sets up signals and standard files, then runs the command.

A command's code is imported only when the command is about to run. A process that receives a stop
signal before that ends immediately, because no work has begun.
"""

import signal
import sys
from collections.abc import Sequence
from typing import NoReturn


def leave_early() -> None:
    """End immediately on Ctrl-C, unless the shell that started this process ignores SIGINT."""
    from docllm.schemas.runtime.starting import INTERRUPTED, leave_on  # noqa: PLC0415 - `schemas` is ours

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        leave_on([signal.SIGINT], INTERRUPTED)


def start(argv: Sequence[str]) -> NoReturn:
    """Run one command as a program of its own."""
    leave_early()
    from docllm.schemas.runtime.starting import take_standard_files  # noqa: PLC0415 - `schemas` is ours

    take_standard_files()

    from docllm.producer.cli.parser import parser  # noqa: PLC0415 - the signals count first

    options = parser(argv).parse_args(argv)
    from docllm.producer.cli.running import run  # noqa: PLC0415

    options.run = options.run.function()
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(run(options))


def main(argv: Sequence[str]) -> int:
    """Run one command in a process that keeps its signals; return the exit code."""
    from docllm.producer.cli.parser import parser  # noqa: PLC0415 - a program has its signals first
    from docllm.producer.cli.running import run  # noqa: PLC0415

    return run(parser().parse_args(argv))


def _interrupt(_number: int, _frame: object) -> NoReturn:
    """Treat SIGTERM like Ctrl-C, so that unfinished work, such as a file's draft, is removed."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    start(sys.argv[1:])
