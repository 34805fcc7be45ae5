"""The seeds that tests run: new ones, or a requested range.

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
FOLDERS = ("docllm", "tests/invariants", "tests/simulation")


MIGRATIONS = (
    ROOT / "docllm" / "schemas" / "ledger" / "migrations"
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


@cache
def loaded(seeds: int = 1) -> list[Path]:
    """Return the project's files that so many runs load, sorted.

    A separate process reports them, because this one may have loaded more.
    """
    program = [sys.executable, "-c", _SAY_LOADED.format(seeds=seeds)]
    output = subprocess.run(program, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    ours = (
        path
        for path in map(Path, output.splitlines())
        if any(path.is_relative_to(ROOT / folder) for folder in FOLDERS)
    )
    return sorted({*ours, *MIGRATIONS.rglob("*.py")})


NUMBER = int(os.environ.get("DOCLLM_TEST_SEEDS", "300"))


def first() -> int:
    """Return the first seed of a test run."""
    return int(os.environ.get("DOCLLM_TEST_FIRST_SEED") or of_this_code())
