"""The signals that ask a program to leave."""

import signal
from types import FrameType

import pytest

from agent.process.signals import stops


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

    assert (signal.SIGHUP in stops()) is asks
    assert {signal.SIGTERM, signal.SIGINT} <= set(stops())
