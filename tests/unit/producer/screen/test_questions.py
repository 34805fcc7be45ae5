"""A question before a command that costs money can be interrupted."""

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
ASK = """
import argparse, signal, sys
from docllm.producer.screen.output import agreed
from docllm.producer.cli.running import run

signal.signal(signal.SIGINT, signal.default_int_handler)
command = lambda config, options: agreed(options, "replay 3 tasks?")
sys.exit(run(argparse.Namespace(config=None, wait=0, yes=False, run=command)))
"""


def asked(folder: Path) -> "subprocess.Popen[bytes]":
    pipe = subprocess.PIPE
    program = subprocess.Popen(
        [sys.executable, "-c", ASK],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        stdin=pipe,
        stderr=pipe,
    )
    assert program.stderr is not None
    assert program.stderr.readline() == b"replay 3 tasks? [y/N]\n"
    return program


def test_ctrl_c_at_a_question_ends_the_command(tmp_path: Path) -> None:
    """Ctrl-C ends the command at once, without waiting for the answer.

    It used to wait until somebody pressed Enter.
    """
    with asked(tmp_path) as program:
        program.send_signal(signal.SIGINT)
        try:
            assert program.wait(60) == 130
        finally:
            program.kill()


def test_an_answer_is_taken(tmp_path: Path) -> None:
    """The answer is returned; the command makes its own exit code from it, here 1 for yes."""
    with asked(tmp_path) as program:
        _, errors = program.communicate(b"y\n", 20)

    assert errors == b""
    assert program.returncode == 1
