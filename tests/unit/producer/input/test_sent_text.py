"""The text of a request that counts as input, against what a provider counts."""

import orjson
import pytest

from docllm.agent.llm.rehearsal.answers import prompt_of, tokens
from docllm.producer.input.lines import ValidLine, read_line
from docllm.producer.input.sent_text import sent_bytes

TEXT = "The invoice of 12 March names 3 items, and is due within thirty days. "
URL = {"url": "https://example.com/a.png"}


def line(**fields: object) -> ValidLine:
    read = read_line(1, orjson.dumps(fields))
    assert isinstance(read, ValidLine)
    return read


def batch_line(content: object, **more: object) -> ValidLine:
    """Return a line as OpenAI's batches have it."""
    body = {
        "model": "gpt-4o-mini",
        "messages": [{"role": "user", "content": content}],
        "temperature": 0.2,
        "max_tokens": 200,
        "metadata": {"customer": "4711", "purpose": "reading of invoices"},
    }
    url = "/v1/chat/completions"
    return line(custom_id="request-0001", method="POST", url=url, body=body | more)


@pytest.mark.parametrize("times", [1, 3, 50])
@pytest.mark.parametrize("parts", [False, True])
def test_a_line_of_a_batch_counts_as_its_provider_counts_it(times: int, *, parts: bool) -> None:
    """The estimate is within 30 % of the usage, even where most of the line is no text."""
    text = TEXT * times
    read = batch_line([{"type": "text", "text": text}] if parts else text)
    assert read.task.body is not None

    usage = tokens(prompt_of(read.task.body["messages"]))

    assert 0.7 * usage <= read.input_bytes / 4 <= 1.3 * usage


def test_a_line_of_ours_counts_with_its_prompt_and_text() -> None:
    read = line(id="a", prompt="Sum up: {document}", input={"text": "w\u00f6rd"}, tenant="acme")

    assert sent_bytes(read.task) == len("Sum up: {document}word") + 1


def test_tools_schemas_and_images_are_input() -> None:
    """An image counts as a usual one does, not as the letters of its URL or of its bytes."""
    tool = {"type": "function", "function": {"name": "pay", "parameters": {"type": "object"}}}
    schema = {"name": "invoice", "schema": {"type": "object"}}
    image = {"type": "image_url", "image_url": URL | {"detail": "low"}}
    data = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * 100_000}"}}
    plain = sent_bytes(batch_line("x").task)

    assert sent_bytes(batch_line("x", tools=[tool]).task) > plain + len("function pay parameters")
    form = {"type": "json_schema", "json_schema": schema}
    assert sent_bytes(batch_line("x", response_format=form).task) > plain + len("invoice object")
    assert sent_bytes(batch_line([image]).task) == 85 * 4
    assert sent_bytes(batch_line([data]).task) == 765 * 4


@pytest.mark.parametrize(
    "content", [None, 7, [7, None, {"text": None}, {"type": "input_audio"}], [[]]]
)
def test_odd_content_counts_nothing(content: object) -> None:
    assert sent_bytes(batch_line(content).task) == 0
