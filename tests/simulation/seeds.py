"""The seeds that tests run: new ones or a requested range, and those that ever failed.

New seeds depend on the code that a run loads. Each version of it is tried with seeds not used
before, and the same version always does the same. Code that no run loads, such as commands and the
clients of servers, changes no run.
"""

import os
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("agent", "producer", "schemas", "tests/invariants", "tests/simulation")


MIGRATIONS = (
    ROOT / "schemas" / "ledger" / "migrations"
)  # loaded by their paths, and by a run's first ledger
_SAY_LOADED = """
import sys
from tests.simulation import batch
batch.run(range({seeds}), batch.Store())
print(*(getattr(one, "__file__", None) or "" for one in sys.modules.values()), sep="\\n")
"""


@cache
def of_this_code() -> int:
    """Return the first of the seeds that are new with this version of the code."""
    digest = sha256()
    for path in loaded():
        digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:4])


def loaded(seeds: int = 1) -> list[Path]:
    """Return the project's files that so many runs load, sorted.

    A separate process reports them, because this one may have loaded more.
    """
    program = [sys.executable, "-c", _SAY_LOADED.format(seeds=seeds)]
    said = subprocess.run(program, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    ours = (
        path
        for path in map(Path, said.splitlines())
        if any(path.is_relative_to(ROOT / folder) for folder in FOLDERS)
    )
    return sorted({*ours, *MIGRATIONS.rglob("*.py")})


NUMBER = int(os.environ.get("DOCLLM_TEST_SEEDS", "300"))
FIRST = int(os.environ.get("DOCLLM_TEST_FIRST_SEED", of_this_code()))

EVER_FAILED: dict[int, str] = {  # seed: what it showed
    71: "a replay of two people at once",
    532: "a run ended while somebody was about to replay",
    544: "a retry is not early when the database's clock was set back",
    591: "a dead letter that was sent late, after the replay",
    100701: "a guard's probe cut an attempt's wait short",
    100775: "a route that fails often takes its time",
    101314: "a commit of somebody who is no member any more",
    200077: "a record that was on its way when everything had ended",
    1068079069: "a retry is not early when the database's clock was set back between its claim and its call",
    3836322203: "a stand-in that the broker lost after the commit",
    3836323031: "an agent that leaves says so though its main loop is stalled",
    2613791595: "a call for a suspect that had waited longer than its lease",
    4228662250: "an attempt that was snoozed, then the database's clock was set back",
    935974506: "a topic that was made again while its reader looked away had no reader",
    212948304: "two configurations were applied at once, and the older one forgot the other's tier",
    3424299183: "a program waited out an outage of the database that had ended for all others",
    3424300378: "the commit of somebody who is no member any more was taken for the end of the work",
    961733466: "a second try, 16 s later, stored the ids of topics that had been made again meanwhile",
    160734132: "a record that only names a task was relieved as if it were the task's",
    160734325: "the same, behind a task that was snoozed",
    202627: "a success of the future, by a clock that was set back",
    4085818156: "an agent that stood still between its registration and its first heartbeat",
    3200493886: "a task that was cancelled and replayed while it waited, then the database's clock was set back",
}
