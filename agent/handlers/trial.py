"""The program that tries handlers where nothing else runs: `python -m docllm.agent.handlers.trial`.

It imports each handler as an agent does, and prints those that cannot be used, with the reasons.
"""

import json
import os
import sys
from collections.abc import Sequence

from docllm.agent.handlers.registry import function_of
from docllm.schemas.errors import ConfigError


def main(paths: Sequence[str]) -> None:
    """Try the handlers `package.module:function`; print one line of JSON, the last one."""
    reasons = {}
    for path in paths:
        try:
            function_of(path)
        except ConfigError as error:
            reasons[path] = str(error)
    sys.stdout.write(f"\n{json.dumps(reasons)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # threads that a handler's module started do not matter any more
