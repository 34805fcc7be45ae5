"""The command `docllm`, in a module whose name no other package has.

It makes sure that the package `agent` is docllm's own before it imports it. A handler's child
process imports this module again, so it imports nothing slow.

Tested by tests/integration/test_own_packages.py.
"""

import runpy
from pathlib import Path
from typing import NoReturn

_OWN_PACKAGES = Path(__file__).parent / "schemas/runtime/own_packages.py"


def main() -> NoReturn:
    """Run the program that the arguments name."""
    runpy.run_path(str(_OWN_PACKAGES))["require_own"]("agent")
    from agent.docllm import main as run  # noqa: PLC0415 - `agent` is ours

    run()


if __name__ == "__main__":
    main()
