"""A crash point costs nothing, and kills only a program that is asked to die."""

import os
import signal
import subprocess
import sys
import timeit
from pathlib import Path

from docllm.schemas.runtime import crash

ROOT = Path(__file__).parents[4]
PROGRAM = """
from docllm.schemas.runtime import crash
for _ in range(3):
    crash.reach("settle.committed")
    crash.reach("commit.done")
    print("on", flush=True)
"""


def run(**environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != crash.VARIABLE}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=clean | environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_nothing_happens_unless_it_is_asked_for() -> None:
    """Without the variable, or with an empty one, a program goes through every point."""
    for environ in ({}, {crash.VARIABLE: ""}, {crash.VARIABLE: "another.point"}):
        done = run(**environ)
        assert (done.returncode, done.stdout, done.stderr) == (0, "on\non\non\n", "")


def test_a_program_dies_at_its_point() -> None:
    """A program dies at its point as by `kill -9`, the first time that it gets there.

    It leaves a line that names the point.
    """
    done = run(**{crash.VARIABLE: "commit.done"})
    assert (done.returncode, done.stdout, done.stderr) == (
        -signal.SIGKILL,
        "",
        "killed at commit.done\n",
    )


def test_a_later_time_can_be_asked_for() -> None:
    """POINT:3 lets two pass."""
    done = run(**{crash.VARIABLE: "settle.committed:3"})
    assert (done.returncode, done.stdout, done.stderr) == (
        -signal.SIGKILL,
        "on\non\n",
        "killed at settle.committed:3\n",
    )


def test_a_point_costs_an_empty_call() -> None:
    """A point that is not armed costs at most a few empty calls.

    Therefore it may stand on the path of every task.
    """

    def empty(_point: str) -> None:
        pass

    names = {"crash": crash, "empty": empty}
    point = min(
        timeit.repeat('crash.reach("settle.committed")', globals=names, number=20_000, repeat=15)
    )
    plain = min(timeit.repeat('empty("settle.committed")', globals=names, number=20_000, repeat=15))
    print(f"a point: {point / 20_000 * 1e9:.0f} ns, an empty call: {plain / 20_000 * 1e9:.0f} ns")  # noqa: T201 - figures
    assert point < 5 * plain
