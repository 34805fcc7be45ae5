"""The product's sources as syntax, parsed and walked once for all tests that look through them."""

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FOLDERS = ("agent", "docllm", "producer", "schemas")


class Source(NamedTuple):
    """A source: its text, its statements, and all nodes within them."""

    text: str
    body: Sequence[ast.stmt]
    nodes: Sequence[ast.AST]

    @classmethod
    def of(cls, text: str) -> "Source":
        """Parse a source."""
        module = ast.parse(text)
        return cls(text, module.body, tuple(ast.walk(module)))


@cache
def sources() -> dict[str, Source]:
    """Return each source of the product by its path in the repository."""
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): Source.of(path.read_text("utf-8")) for path in paths}
