"""The command `docllm` starts both programs as their modules do."""

import ast
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import docllm

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("words", "module", "code"),
    [
        ("topics check", "uvloop", 130),
        ("agent", "uvloop", 0),
        ("agent resume x", "sqlalchemy", 130),
        ("resume x", "sqlalchemy", 130),
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


def test_public_names_are_shown_and_loaded_when_used() -> None:
    """`import docllm` loads nothing of it; `dir`, `help` and `import *` know the public names."""
    code = """
import sys, docllm
before = [name for name in sys.modules if name.startswith("docllm.")]
from docllm import *
print(before, set(docllm.__all__) <= {*dir(docllm)}, set(docllm.__all__) <= {*globals()})
"""

    done = subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True
    )

    assert done.stdout == "[] True True\n"


@pytest.mark.parametrize(
    "error",
    [
        docllm.GiveUpError("x"),
        docllm.TryAgainError("x", after_s=3),
        docllm.ComeBackError(after_s=3, state={"a": 1}),
    ],
)
def test_an_error_of_a_handler_crosses_a_process(error: Exception) -> None:
    """A pickled error is the same public class again, with what it says."""
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here

    assert (type(again), again.args, vars(again)) == (type(error), error.args, vars(error))


def test_the_stub_names_what_the_module_does() -> None:
    """Type checkers read the stub, programs the module."""
    stub = ast.parse((ROOT / "docllm/__init__.pyi").read_text())
    imported = {
        alias.name: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    (names,) = [node.value for node in stub.body if isinstance(node, ast.Assign)]

    assert imported == docllm._MODULES  # type: ignore[attr-defined]
    assert ast.literal_eval(names) == docllm.__all__
