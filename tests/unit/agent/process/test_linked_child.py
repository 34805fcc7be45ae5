"""How a child that is linked to its agent has ended."""

import signal

import pytest

from docllm.agent.process.linked_child import name_of_end


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-signal.SIGKILL, "SIGKILL"),
        (-signal.SIGXCPU, "SIGXCPU"),
        (-40, "signal 40"),
    ],
)
def test_the_end_of_a_child_has_a_name(code: int, name: str) -> None:
    """Signals are named as the system names them, those without a name by their numbers."""
    assert name_of_end(code) == name
