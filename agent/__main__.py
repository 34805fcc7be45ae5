"""`python -m agent`: starts the command line.

A process that is asked to leave while it still loads its code ends at once, because nothing has
begun. So does `resume` at any time: it is one transaction, which is either made or not.
"""

import sys

from agent.process.signals import stops
from schemas.runtime.starting import INTERRUPTED, end, leave_on, take_standard_files

if __name__ == "__main__":
    if sys.argv[1:2] != ["rehearsal-llm"]:
        leave_on(stops(), INTERRUPTED if sys.argv[1:2] == ["resume"] else 0)
    take_standard_files()

    from agent.cli.main import main
    from agent.process.drain_watchdog import leave_after

    code = main(sys.argv[1:])
    leave_after(lambda: code)
    end(stops(), code)
