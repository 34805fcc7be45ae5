"""The command `docllm`: both programs and the demo under one name.

It imports nothing slow, because a child process of a handler imports it again.
"""

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the program that the arguments name."""
    argv = sys.argv[1:]
    if "_ARGCOMPLETE" in os.environ:
        from docllm.agent.cli.completion import complete  # noqa: PLC0415 - a shell asks, no person

        complete()
    if argv[:1] in (["agent"], ["resume"]):
        from docllm.agent.__main__ import start as start_agent  # noqa: PLC0415 - one is loaded

        start_agent(argv[argv[0] == "agent" :])
    from docllm.producer.__main__ import leave_early, start  # noqa: PLC0415

    leave_early()
    from docllm.producer.cli.parser import COMMANDS  # noqa: PLC0415 - the signals count first

    if argv[:1] and argv[0] in COMMANDS:
        start(argv)
    from docllm.agent.cli.docllm_parser import (  # noqa: PLC0415 - the signals count first
        OWN,
        docllm_parser,
    )

    if argv[:1] and argv[0] not in OWN:
        docllm_parser().require_command(argv)
        start(argv)
    options = docllm_parser().parse_args(argv)
    sys.exit(options.run(options))


if __name__ == "__main__":
    main()
