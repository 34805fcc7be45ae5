"""The rehearsal LLM's answers: summaries, and examples that fit a schema."""

from typing import Any

import jsonschema_rs
import pytest

from docllm.agent.llm.rehearsal.answers import example, prompt_of, summary
from tests.unit.agent.llm.rehearsal.test_service import SCHEMA


def test_a_summary_is_text_of_the_document() -> None:
    """A summary has the sentences with the frequent words, in order, without the instruction."""
    text = (
        "Summarize: It rained. The harvest costs money. Nobody came. A harvest which costs "
        "money is a harvest."
    )

    assert summary(text) == "The harvest costs money. A harvest which costs money is a harvest."
    assert summary(text) == summary(text)


@pytest.mark.parametrize("text", ["", "   \n ", "Summarize: "])
def test_an_empty_document(text: str) -> None:
    """Even an empty document gets an answer."""
    assert summary(text)


def test_an_example_fits_its_schema() -> None:
    """An object made for a schema is valid, has the required fields, and no others."""
    made = example(SCHEMA, "Sales rose.")

    jsonschema_rs.validate(SCHEMA, made)
    assert set(made) == set(SCHEMA["required"])
    assert made["name"] == "Sales"


def test_a_schema_that_refers_to_itself_ends() -> None:
    """A recursive schema gives an example of bounded depth."""
    assert example({"$ref": "#"}, "x") is None
    assert "next" in example({"properties": {"next": {"$ref": "#"}}}, "x")


def test_a_whole_number_may_be_written_as_a_fraction() -> None:
    """2.0 counts as a whole number, as in JSON Schema."""
    assert (
        example({"type": "string", "minLength": 9.0, "maxLength": 5.0}, "Sales rose.")
        == "Sales...."
    )
    assert example({"type": "array", "minItems": 2.0, "items": {"type": "integer"}}, "x") == [0, 0]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([{"content": "no"}, {"content": "yes"}], "yes"),
        (
            [
                {
                    "content": [
                        {"type": "text", "text": "a"},
                        {"type": "image_url"},
                        {"type": "text", "text": "b"},
                    ]
                }
            ],
            "a\nb",
        ),
        ([{"content": None}], ""),
        (["odd"], ""),
    ],
)
def test_the_text_of_messages(messages: list[Any], text: str) -> None:
    """The last message counts, as text or as parts."""
    assert prompt_of(messages) == text
