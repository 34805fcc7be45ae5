"""A plain task stays as light as it is, and pays for no feature that other tasks use.

`bench/weight.toml` has the bounds, and says what to do when a task costs more.
"""

import subprocess
import sys

from bench.program import ROOT


def test_a_plain_task_stays_within_its_bounds() -> None:
    """The counts need no clock; the table names the feature that costs a plain task more."""
    command = [sys.executable, "-m", "bench", "weight", "--quick"]

    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=800, check=False
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr[-2000:]
    assert "beside all features" in ended.stdout
