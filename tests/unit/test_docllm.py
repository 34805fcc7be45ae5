"""The command `docllm` starts both programs as their modules do."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("words", "module", "code"),
    [
        ("topics check", "uvloop", 130),
        ("agent", "uvloop", 0),
        ("agent resume x", "sqlalchemy", 130),
    ],
)
def test_an_interrupt_during_the_start_is_as_with_a_module(
    tmp_path: Path, words: str, module: str, code: int
) -> None:
    """Ctrl-C while the code is loaded: 130 for a command, 0 for an agent, without a traceback."""
    kill = f"import os, signal\nos.kill(os.getpid(), {signal.SIGINT:d})\n"
    (tmp_path / f"{module}.py").write_text(kill)
    environ = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}

    done = subprocess.run(
        [sys.executable, "-m", "docllm", *words.split()],
        check=False,
        cwd=tmp_path,
        env=environ,
        capture_output=True,
    )

    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")
