"""A task that is longer than its model's context is reported, as far as the context is known."""

from dataclasses import replace

import orjson
import pytest

from docllm.producer.input.accounts import TaskAccounts
from docllm.producer.input.lines import ValidLine, read_line
from docllm.producer.input.load_warnings import LongDocuments
from docllm.schemas.settings.config import Config, LLMConfig, RouteConfig, TypeConfig

CONFIG = Config(
    llm=LLMConfig(base_url="http://h/v1", model="mini", context_tokens=1000),
    routes={
        "large": RouteConfig(context_tokens=2000),
        "known": RouteConfig(model="gpt-3.5-turbo"),
    },
    types={"invoice": TypeConfig(route="large")},
)


def line(name: str, tokens: int, **fields: object) -> ValidLine:
    text = {"prompt": "{document}", "input": {"text": "x" * 4 * tokens}}
    made = read_line(1, orjson.dumps({"id": name} | text | fields))
    assert isinstance(made, ValidLine)
    return made


def warned(*lines: ValidLine, config: Config = CONFIG) -> str:
    long = LongDocuments(TaskAccounts(config))
    for made in lines:
        long.add(made)
    return str(long)


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({}, 1000),
        ({"model": "mini"}, 1000),
        ({"model": "large"}, 2000),
        ({"type": "invoice"}, 2000),
        ({"model": "gpt-3.5-turbo"}, 16_385),
        ({"model": "openai/gpt-3.5-turbo-0125"}, 16_385),
    ],
)
def test_the_limit_is_that_of_the_model_that_the_task_takes(
    fields: dict[str, object], limit: int
) -> None:
    """The limit is `context_tokens` of the task's route, or is in the table of known models."""
    assert warned(line("a", limit - 50, **fields)) == ""
    assert f"takes {limit:,}" in warned(line("a", limit + 1, **fields))


def test_an_unknown_model_has_no_limit() -> None:
    """A limit of another model says nothing about it."""
    assert warned(line("a", 100_000, model="of-my-own")) == ""
    assert warned(line("a", 100_000), config=Config()) == ""


def test_the_longest_are_named_with_their_sizes_and_the_estimate() -> None:
    """Of any number, three are named, the longest first."""
    lines = [line(f"t{number}", 2000 + 10 * number) for number in range(9)]

    said = warned(*lines)

    assert said.startswith("9 tasks are probably longer than the model takes: 't8' (about 2,0")
    assert said.index("'t8'") < said.index("'t7'") < said.index("'t6'")
    assert "'t5'" not in said
    assert "estimated with 4 bytes a token" in said


def test_a_document_by_uri_counts_with_its_size() -> None:
    """The document's text is not in the line."""
    source = {"uri": "file:///a.txt", "size": 40_000}
    made = read_line(1, orjson.dumps({"id": "a", "prompt": "{document}", "input": source}))
    assert isinstance(made, ValidLine)

    assert "'a.txt' (about 10," in warned(replace(made, document="a.txt"))


def test_a_document_that_its_agents_split_is_not_too_long() -> None:
    """`map-reduce` takes documents of any length."""
    assert warned(line("a", 100_000, type="map-reduce")) == ""
    assert "load them as type map-reduce" in warned(line("a", 100_000))
