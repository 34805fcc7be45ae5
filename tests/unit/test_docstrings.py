"""A docstring explains names that exist: parameters, fields, and what its code uses."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A sentence, or an item of a list, that begins with a name explains it.
EXPLAINED = re.compile(
    r"(?:^|[.;)]\s+|- )`([a-z_][a-z0-9_]*)`"
    r"(?=:| (?:is|are|has|have|says|returns|gets|gives|takes|names|means|holds|maps|counts)\b)"
)


def documented(package: str) -> Iterator[tuple[str, ast.AST, str]]:
    """Yield each class and function of a package that has a docstring, with its place."""
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield place, node, ast.get_docstring(node) or ""


def names_in(node: ast.AST) -> set[str]:
    """Return every name that the code of a class or function has or uses."""
    parts = list(ast.walk(node))
    return (
        {part.arg for part in parts if isinstance(part, ast.arg)}
        | {part.id for part in parts if isinstance(part, ast.Name)}
        | {part.attr for part in parts if isinstance(part, ast.Attribute)}
        | {part.name for part in parts if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}
    )


@pytest.mark.parametrize("package", ["agent", "producer", "schemas"])
def test_docstrings_explain_names_that_exist(package: str) -> None:
    """A parameter that was renamed keeps no explanation under its former name."""
    explained = [
        (place, name, names_in(node))
        for place, node, docstring in documented(package)
        for name in EXPLAINED.findall(docstring)
    ]

    assert explained
    assert [(place, name) for place, name, names in explained if name not in names] == []


def is_property(node: ast.AST) -> bool:
    """Return whether a function is read like a value."""
    names = [ast.unparse(one).split(".")[-1] for one in getattr(node, "decorator_list", ())]
    return bool({"property", "cached_property"} & set(names))


@pytest.mark.parametrize("package", ["agent", "producer", "schemas"])
def test_the_docstring_of_a_property_names_its_value(package: str) -> None:
    """A property is read, not called: its docstring does not say "Return"."""
    properties = [(place, text) for place, node, text in documented(package) if is_property(node)]

    assert properties
    assert [place for place, text in properties if text.startswith("Return")] == []
