"""A child process ends with the one that started it."""

import signal
import subprocess
import sys

PATIENCE_S = 20.0


def test_end_of_input_ends_a_child() -> None:
    """Where the kernel cannot tie a child to its parent, the end of its input does."""
    code = "import time; from agent import parent; parent.BY_KERNEL = False; parent.follow(); print(1, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        child.stdin.close()

        assert child.wait(PATIENCE_S) == -signal.SIGKILL
