"""The signals that ask a program to leave."""

import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from types import FrameType

import pytest

from docllm.agent.process import signals
from docllm.agent.process.signals import rereads, stops


@pytest.mark.parametrize(
    ("handler", "asks"), [(signal.SIG_DFL, True), (signal.SIG_IGN, False), (None, True)]
)
def test_a_closed_terminal_asks_unless_the_program_shall_outlive_it(
    monkeypatch: pytest.MonkeyPatch,
    handler: signal.Handlers | FrameType | None,
    asks: bool,  # noqa: FBT001
) -> None:
    """`nohup` starts a program with SIGHUP ignored."""
    monkeypatch.setattr(signal, "getsignal", lambda _number: handler)
    monkeypatch.setattr(signals, "has_terminal", lambda: True)

    assert (signal.SIGHUP in stops()) is asks
    assert {signal.SIGTERM, signal.SIGINT} <= set(stops())
    assert rereads() == ()


def test_without_a_terminal_sighup_asks_to_read_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No terminal can have closed, so somebody means the settings, as with other servers."""
    monkeypatch.setattr(signals, "has_terminal", lambda: False)

    assert stops() == (signal.SIGTERM, signal.SIGINT)
    assert rereads() == (signal.SIGHUP,)


@pytest.mark.parametrize("has", [True, False])
def test_a_process_knows_whether_a_terminal_controls_it(has: bool) -> None:  # noqa: FBT001
    """The answer stays, since a terminal that has closed would look like none."""
    program = (
        "from docllm.agent.process.signals import has_terminal as has; print(has(), flush=True)"
    )
    pid, descriptor = pty.fork()
    if pid == 0:
        try:
            command = [sys.executable, "-c", program]
            done = subprocess.run(command, start_new_session=not has, check=False)
        finally:
            os._exit(done.returncode)
    said = b""
    with suppress(OSError):  # the terminal's end, on Linux
        while part := os.read(descriptor, 100):
            said += part
    os.close(descriptor)

    assert os.waitpid(pid, 0)[1] == 0
    assert said.split() == [str(has).encode()]
