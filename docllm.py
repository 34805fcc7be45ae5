"""The command `docllm`: both programs and the demo under one name.

It makes sure that the packages are docllm's own before it imports them; no other package has this
module's name. It imports nothing slow, because a child process of a handler imports it again.
Children of an agent that was started as `docllm` run this module too, so their messages name the
same commands.

Tested by tests/unit/test_docllm.py and tests/integration/versions/test_own_packages.py.
"""

import os
import runpy
import sys
from pathlib import Path
from typing import NoReturn

_OWN_PACKAGES = Path(__file__).parent / "schemas/runtime/own_packages.py"


def main() -> NoReturn:
    """Run the program that the arguments name."""
    runpy.run_path(str(_OWN_PACKAGES))["require_own"]("agent", "schemas", "producer")
    argv = sys.argv[1:]
    if "_ARGCOMPLETE" in os.environ:
        from docllm.agent.cli.completion import complete  # noqa: PLC0415 - a shell asks, no person

        complete()
    if argv[:1] == ["agent"]:
        from docllm.agent.__main__ import start as start_agent  # noqa: PLC0415 - one program is loaded

        start_agent(argv[1:])
    from docllm.producer.__main__ import leave_early, start  # noqa: PLC0415

    leave_early()
    from docllm.agent.cli.docllm_parser import OWN, docllm_parser  # noqa: PLC0415 - the signals count first

    if argv[:1] and argv[0] not in OWN:
        docllm_parser().require_command(argv)
        start(argv)
    options = docllm_parser().parse_args(argv)
    sys.exit(options.run(options))


if __name__ == "__main__":
    main()
