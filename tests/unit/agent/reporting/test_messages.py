"""What an agent tells its parent arrives as it was; anything else is ignored."""

import pytest

from docllm.agent.reporting.views import (
    DeadExample,
    Note,
    ProgressMessage,
    dead_example,
    from_line,
    to_line,
)
from docllm.producer.ledger.status.progress import Totals
from docllm.schemas.codes import Code


@pytest.mark.parametrize(
    "message",
    [
        Totals(open=3, dead_by_class={"SERVER": 1}),
        DeadExample("SERVER", "task a of batch b: 500"),
        Note("batch b: its load has not ended", Code.LOAD_UNFINISHED),
    ],
)
def test_a_message_arrives_as_it_was(message: ProgressMessage) -> None:
    """A message is one line."""
    line = to_line(message)

    assert b"\n" not in line
    assert from_line(line) == message


@pytest.mark.parametrize("line", [b"", b"x", b"[]", b"{}", b'{"totals": 1}', b'{"other": {}}'])
def test_other_lines_are_ignored(line: bytes) -> None:
    """A handler may write into its agent's pipe."""
    assert from_line(line) is None


def test_an_example_is_one_safe_line() -> None:
    """A provider's text may hold line ends and controls."""
    assert dead_example("SERVER", "a", "b", "500\n\x1b[31m").text == "task a of batch b: 500 [31m"
