"""A process in which no Python code runs any more ends itself, and says where it hung."""

import os
import signal
import subprocess
import sys

import pytest

from docllm.schemas.runtime.interpreter_watchdog import FROZEN, ended_when_frozen

HANGS = """
import re, threading
from docllm.schemas.runtime.interpreter_watchdog import ended_when_frozen

def backtracks():
    re.match(r"(a+)+$", "a" * 60 + "b")

with ended_when_frozen(0.2):
    {call}
"""
IN_ANOTHER_THREAD = "threading.Thread(target=backtracks).start()"
STOPS = """
import os, signal, time
from docllm.schemas.runtime.interpreter_watchdog import ended_when_frozen

with ended_when_frozen(0.2):
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.1)
print("goes on")
"""
COMPUTES = """
import time
from docllm.schemas.runtime import interpreter_watchdog as watchdog

watchdog._EVERY_S = 0.01
with watchdog.ended_when_frozen(0.3):
    while time.process_time() < 1.5:
        pass
print("goes on")
"""


def program(code: str) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("call", ["backtracks()", IN_ANOTHER_THREAD])
def test_a_process_whose_lock_is_held_without_end_is_ended(call: str) -> None:
    """An expression that backtracks stops all threads and signal handlers of Python."""
    with program(HANGS.format(call=call)) as process:
        _, errors = process.communicate(timeout=60)

    assert process.returncode == FROZEN == 26
    assert "in backtracks" in errors


def test_a_process_that_was_stopped_goes_on() -> None:
    """Time in which the process may not run does not count, as in a machine that was suspended."""
    with program(STOPS) as process:
        os.waitpid(process.pid, os.WUNTRACED)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        process.send_signal(signal.SIGCONT)
        output, _ = process.communicate(timeout=60)

    assert (process.returncode, output) == (0, "goes on\n")


def test_python_code_that_computes_for_long_goes_on() -> None:
    """It gives the lock to other threads, so heartbeats and signal handlers still run."""
    with program(COMPUTES) as process:
        output, errors = process.communicate(timeout=60)

    assert (process.returncode, output, errors) == (0, "goes on\n", "")


def test_nothing_is_left_behind() -> None:
    with ended_when_frozen():
        assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 0

    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)
