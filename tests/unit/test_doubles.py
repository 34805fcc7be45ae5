"""Doubles of tests know what they stand for."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ANSWERS_ALL = {"Mock", "MagicMock", "AsyncMock", "NonCallableMock", "PropertyMock"}


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Yield each call of a file with the last part of its name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            yield name, node


def test_no_double_answers_what_its_original_would_not() -> None:
    """A mock without a specification keeps a test green after a method was renamed."""
    unspecified = [
        f"{path.relative_to(ROOT)}:{node.lineno}: give {name} a spec, use create_autospec, "
        "or write a small class in tests/support"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name, node in calls(path)
        if name in ANSWERS_ALL and not {"spec", "spec_set"} & {word.arg for word in node.keywords}
    ]
    assert unspecified == []
