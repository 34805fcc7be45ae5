"""The built-in types of task, and the names that a type may have."""

import pytest

from docllm.schemas.task.line.parsing import parse
from docllm.schemas.task.task_types import BUILT_IN, MAP_REDUCE, is_name


def test_what_a_line_gets_by_itself_is_built_in() -> None:
    """A line without a type, and a line of the OpenAI batch API, never need a setting."""
    lines = (
        b'{"id":"a","prompt":"x"}',
        (
            b'{"custom_id":"a","method":"POST","url":"/v1/chat/completions",'
            b'"body":{"messages":[{"role":"user","content":"x"}]}}'
        ),
    )

    assert {parse(line).type for line in lines} == BUILT_IN - {MAP_REDUCE}


@pytest.mark.parametrize("name", ["a", "9", "map-reduce", "v1.2_x", "a" * 64])
def test_a_name_is_short_and_plain(name: str) -> None:
    """Letters, digits, dots, dashes and underscores make a name."""
    assert is_name(name)


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "a\n", "ä", "a" * 65, "\x1b[1m"])
def test_anything_else_is_no_name(name: str) -> None:
    """A text that a terminal, a file or a shell could take for something else is no name."""
    assert not is_name(name)
