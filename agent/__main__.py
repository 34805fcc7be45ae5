"""`python -m agent`. One that is asked to leave while it still loads its code ends at once: nothing has begun."""

import sys

from agent.stops import stops
from schemas.starting import end, leave_on, take_standard_files

NO_AGENTS = (["resume"], ["rehearsal-llm"])


if __name__ == "__main__":
    if sys.argv[1:2] not in NO_AGENTS:
        leave_on(stops(), 0)
    take_standard_files()

    from agent.cli import main

    end(stops(), main(sys.argv[1:]))
