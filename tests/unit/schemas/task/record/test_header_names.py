"""A header has its name in one place, so that a search for the constant finds every use."""

import ast
import re
from collections.abc import Iterator

import pytest

from docllm.schemas.task.record import header_names
from tests.support.syntax import Source, sources

HOME = "schemas/task/record/header_names.py"
NAMES = {value for name, value in vars(header_names).items() if name.isupper()}
PREFIXES = (header_names.OWN_PREFIX, header_names.SPRING_PREFIX, header_names.KIP_PREFIX)
# Names that begin like docllm's headers, and are none.
OTHERS = {
    "docllm-": "a temporary folder",
    "docllm-data": "a folder",
    "docllm-demo": "a folder",
    "docllm-peek": "a consumer group",
    "docllm-probe/": "a request id",
    "docllm-reader": "a consumer group",
    "docllm-stdin-": "a file",
}


def words(source: Source) -> Iterator[str]:
    """Yield each word of a source's texts that is a header's name, or begins like one.

    Docstrings may name headers, and a sentence may name the `traceparent`.
    """
    prose = {node.value for node in source.nodes if isinstance(node, ast.Expr)}
    for node in source.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose:
            if node.value in NAMES:
                yield node.value
            else:
                yield from filter(is_like_one, re.findall(r"[\w.-]+/?", node.value))


def is_like_one(word: str) -> bool:
    """Return whether a word begins as headers do."""
    return word.startswith(PREFIXES)


def test_no_other_file_of_the_product_spells_a_header() -> None:
    """Every reader and writer takes the constant."""
    spelled = {
        (path, word) for path, source in sources().items() if path != HOME for word in words(source)
    }

    assert {use for use in spelled if use[1] not in OTHERS} == set()
    assert {word for _, word in spelled} == set(OTHERS)


@pytest.mark.parametrize(
    "source",
    ['own["docllm-task"]', 'f"name it in docllm-batch, {why}"', '("__dlq.errors.new", b"")'],
)
def test_a_spelled_header_is_found(source: str) -> None:
    """A header in a message or in a tuple, known or new, is looked at."""
    assert list(words(Source.of(source)))
