"""`python -m agent`: signals and standard files, then the command that the arguments name.

A stop signal that arrives while the code is still loading ends the process immediately, because no
work has begun. `resume` also ends immediately at any time: its one transaction is either committed
or not.
"""

import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from docllm.agent.process.signals import rereads, stops


def start(argv: Sequence[str]) -> NoReturn:
    """Run one command as a program of its own."""
    from docllm.schemas.runtime.collector import (  # noqa: PLC0415 - the signals count first
        save_memory,
    )
    from docllm.schemas.runtime.starting import (  # noqa: PLC0415 - the signals count first
        INTERRUPTED,
        end,
        leave_on,
        take_standard_files,
    )

    if argv[:1] != ["rehearsal-llm"]:
        leave_on(stops(), INTERRUPTED if argv[:1] == ["resume"] else 0)
        for number in rereads():
            signal.signal(number, signal.SIG_IGN)  # settings that are not read yet are new
    take_standard_files()
    save_memory()

    from docllm.agent.cli.parser import parsed  # noqa: PLC0415 - the signals count first

    options = parsed(argv)
    from docllm.agent.process.drain_watchdog import leave_after  # noqa: PLC0415

    code = options.run(options, argv)
    leave_after(lambda: code)
    end(stops(), code)


if __name__ == "__main__":
    start(sys.argv[1:])
