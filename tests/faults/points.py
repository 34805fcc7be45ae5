"""The list of all crash points, read from the product's source.

A crash point is a call of `crash.reach`, whose name must be a literal.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("schemas", "producer", "agent")
HOOK = Path("schemas/runtime/crash.py")


def points() -> dict[str, list[str]]:
    """Return each point with the places where it is reached, as `path:line`.

    Raises ValueError for a use that hides a point.
    """
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        place = path.relative_to(ROOT)
        if place != HOOK:
            for line, name in _reached(ast.parse(path.read_text("utf-8")), place.as_posix()):
                places[name].append(f"{place.as_posix()}:{line}")
    return dict(sorted(places.items()))


def _reached(tree: ast.AST, place: str) -> Iterator[tuple[int, str]]:
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import) and _hides(node):
            raise ValueError(
                f"{place}:{node.lineno}: write `from docllm.schemas.runtime import crash` and "
                "`crash.reach(...)`"
            )
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "crash"
        ):
            yield node.lineno, _name(calls.get(id(node)), f"{place}:{node.lineno}")


def _hides(node: ast.ImportFrom | ast.Import) -> bool:
    """Return whether an import gives the hook another name than `crash.reach`."""
    if isinstance(node, ast.ImportFrom) and node.module == "schemas":
        return any(name.name == "crash" and name.asname for name in node.names)
    names = [name.name for name in node.names] if isinstance(node, ast.Import) else [node.module]
    return "docllm.schemas.runtime.crash" in names


def _name(call: ast.Call | None, place: str) -> str:
    match call:
        case ast.Call(
            func=ast.Attribute(attr="reach"), args=[ast.Constant(value=str(name))], keywords=[]
        ):
            return name
    raise ValueError(f"{place}: a crash point is `crash.reach` of one literal name")
