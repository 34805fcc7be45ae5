"""The document's place in a prompt may be written as in a template; other braces mean nothing."""

import pytest

from docllm.agent.handlers.calls.request import chat_body
from docllm.schemas.settings.config import Structured
from docllm.schemas.task.line.parsing import parse
from docllm.schemas.text.placeholder import with_places


@pytest.mark.parametrize(
    ("prompt", "meant"),
    [
        ("Sum: {{document}}", "Sum: {document}"),
        ("Sum: {{ document }}, {{\tdocument}}", "Sum: {document}, {document}"),
        ("Sum: {document}", "Sum: {document}"),
        ('{"a": {{b}}} {{ documents }} { document } {{{x}}}', None),
        ("{{document|upper}} {% document %} ${document", None),
    ],
)
def test_the_place_in_a_template_is_a_place(prompt: str, meant: str | None) -> None:
    """Anything but the bare name in double braces stays as it is."""
    assert with_places(prompt) == (prompt if meant is None else meant)


@pytest.mark.parametrize("place", ["{document}", "{{document}}", "{{ document }}"])
def test_a_task_with_such_a_prompt_is_sent_with_its_document(place: str) -> None:
    """No brace is left over, and the text of a document is never searched."""
    line = b'{"id": "a", "prompt": "Sum: %s", "input": {"text": "T {{ document }}"}}'

    task = parse(line % place.encode())
    body = chat_body(task, task.text, "m", Structured.JSON_SCHEMA)

    assert body["messages"] == [{"role": "user", "content": "Sum: T {{ document }}"}]
