"""`python -m agent`. One that is asked to leave while it still loads its code ends at once: nothing has begun."""

import os
import signal
import sys

NO_AGENTS = (["resume"], ["rehearsal-llm"])


def _leave(_number: int, _frame: object) -> None:
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:2] not in NO_AGENTS:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _leave)  # until `cli` has handlers of its own

    from agent.cli import main

    sys.exit(main(sys.argv[1:]))
