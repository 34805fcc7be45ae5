"""A task whose type gives it no prompt that fits is refused, with its field and the way out."""

from typing import Any

import orjson
import pytest

from docllm.producer.input.lines import InvalidLine, ValidLine, read_line
from docllm.producer.input.refusals.line_checks import checked
from docllm.producer.input.refusals.missing_prompts import MissingPrompts
from docllm.schemas.settings.config import Config, TypeConfig

CONFIG = Config(
    types={
        "bare": TypeConfig(),
        "own": TypeConfig(handler="invoices:handle"),
        "read": TypeConfig(prompt="Read: {document}"),
        "write": TypeConfig(prompt="Write a poem."),
    }
)
INPUT = {"text": "A bill."}


def check(allowed: tuple[str, ...] = (), **fields: Any) -> ValidLine | InvalidLine:
    line = read_line(3, orjson.dumps({"id": "a"} | fields))
    assert isinstance(line, ValidLine), line
    prompts = MissingPrompts(config=CONFIG, allowed=allowed)
    (result,) = checked([line], [prompts.check])
    return result


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"type": "bare", "input": INPUT},
            (
                "line 3: prompt is missing, and type bare has no prompt and no handler here; "
                "write a prompt into the line or into [types.bare]; "
                "if only the agents have one, load with --allow-type bare"
            ),
        ),
        (
            {"type": "read"},
            (
                "line 3: input is missing, but the prompt of type read has {document}; "
                "add input.text or input.uri, or give the line a prompt without {document}"
            ),
        ),
        (
            {"type": "write", "input": INPUT},
            (
                "line 3: input is given, but the prompt of type write has no {document}; "
                "leave input out, or write {document} into the prompt of [types.write]"
            ),
        ),
    ],
)
def test_a_task_without_a_prompt_that_fits_is_refused(fields: dict[str, Any], text: str) -> None:
    """The error names line, field, type and fix; the line can be repaired among the rejects."""
    line = check(**fields)

    assert isinstance(line, InvalidLine)
    assert str(line) == text
    assert orjson.loads(line.text or "")["type"] == fields["type"]


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "bare", "prompt": "Write."},
        {"type": "own", "input": INPUT},
        {"type": "read", "input": INPUT},
        {"type": "read", "input": {"uri": "file:///a.txt"}},
        {"type": "read", "prompt": "Write."},
        {"type": "write"},
        {"type": "only-agents-know"},
        {"prompt": "Read: {document}", "input": INPUT},
    ],
)
def test_a_task_with_a_prompt_or_a_handler_passes(fields: dict[str, Any]) -> None:
    """A task's own prompt was checked before; of types that only agents know, nothing is known."""
    assert isinstance(check(**fields), ValidLine)


def test_a_person_lets_a_type_through() -> None:
    """Only the agents may have its handler."""
    assert isinstance(check(("bare",), type="bare"), ValidLine)
