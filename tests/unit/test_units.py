"""A name says whether it is an instant or a duration, as CONTRIBUTING.md rules."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTANT = re.compile(
    r"(?:^|.*_)(?:at|from|since|until)_s|_?(?:now|began|ended|start|end|deadline)_s"
)


def trees() -> Iterator[tuple[Path, ast.Module]]:
    """Yield each source file of the packages."""
    for package in ("agent", "producer", "schemas"):
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT), ast.parse(path.read_text("utf-8"))


def named_instants(tree: ast.AST) -> Iterator[str]:
    """Yield each name that is given the time of the clock, or a time so much later."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                        pairs = zip(target.elts, value.elts, strict=False)
                        yield from (name_of(to) for to, part in pairs if is_instant(part))
                    elif is_instant(value):
                        yield name_of(target)
            case ast.AnnAssign(target=target, value=ast.expr() as value) if is_instant(value):
                yield name_of(target)
            case ast.NamedExpr(target=target, value=value) if is_instant(value):
                yield target.id
            case ast.keyword(arg=str(name), value=value) if is_instant(value):
                yield name


def is_instant(value: ast.expr) -> bool:
    """Return whether an expression is the time of the clock, or that time plus a duration."""
    match value:
        case ast.Call(func=ast.Attribute(attr="now_s")) | ast.Name(id="now_s"):
            return True
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return is_instant(left) or is_instant(right)
        case ast.Call(func=ast.Name(id="max" | "min"), args=parts):
            return any(map(is_instant, parts))
    return False


def name_of(target: ast.expr) -> str:
    """Return the name of a variable, of an attribute, or of the mapping of an item."""
    match target:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=holder):
            return name_of(holder)
    return ast.unparse(target)


def test_an_instant_has_the_name_of_an_instant() -> None:
    """A reader never takes a time of the clock for a duration."""
    odd = [
        f"{path}: {name} is an instant; end it in _at_s"
        for path, tree in trees()
        for name in named_instants(tree)
        if not INSTANT.fullmatch(name)
    ]
    assert odd == []


@pytest.mark.parametrize(
    "source",
    [
        "self._next_s = clock.now_s() + 3.0",
        "seen_s[key] = now_s",
        "first, due_s = 1, max(last_s, now_s)",
        "lease(beaten_s=clock.now_s())",
        "due_s: float = now_s + wait_s",
        "(sent_s := clock.now_s())",
    ],
)
def test_the_name_of_a_duration_is_found(source: str) -> None:
    """Each way to give an instant a name is looked at."""
    (name,) = named_instants(ast.parse(source))
    assert not INSTANT.fullmatch(name)


@pytest.mark.parametrize("source", ["took_s = now_s - began_s", "self._next_at_s = now_s"])
def test_other_names_are_let_be(source: str) -> None:
    """A difference of two instants is a duration."""
    assert all(INSTANT.fullmatch(name) for name in named_instants(ast.parse(source)))
