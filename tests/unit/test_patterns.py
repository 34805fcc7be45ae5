"""No regular expression of the programs may take longer than in proportion to its text.

A document, a line, a reply or a name may come from anyone, and `re` holds the interpreter's lock:
an expression that backtracks stops the whole agent.
"""

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import pytest

from tests.support.growth import LINEAR, EndlessError, growth
from tests.support.pattern_attacks import Attack, attacks, searches
from tests.support.pattern_forms import DIVIDES, GROUPS, REFERS, REPEATED, REREADS, Form
from tests.support.syntax import Source, sources

ADVICE = "tests/support/pattern_forms.py has the rules"
# Expressions that are made at run time, and why they are linear all the same.
MADE = {
    "producer/text/output_file.py": "an escaped name, and digits that end",
    "schemas/clients/kafka.py": "an escaped name between two letters; no repetition",
    "schemas/documents/guess.py": "one class of characters, repeated and possessive",
    "schemas/text/wording.py": "escaped secrets; no repetition (tests/unit/test_growth.py)",
}
_WHOLE = {"match", "fullmatch"}
_CALLS = {"search", "split", "findall", "finditer", "sub", "subn", "compile"} | _WHOLE


@dataclass(frozen=True)
class Expression:
    """An expression of the source, and whether a match of it may begin anywhere in a text."""

    place: str
    pattern: str | bytes
    flags: int
    searches: bool


def uses(modules: dict[str, Source]) -> dict[tuple[str, str], set[str]]:
    """Return the methods that are called on names; a name without underscore is anyone's."""
    found: dict[tuple[str, str], set[str]] = {}
    for path, source in modules.items():
        called: set[int] = set()
        for node in source.nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                owner = path if node.value.id.startswith("_") else ""
                found.setdefault((owner, node.value.id), set()).add(node.attr)
                called.add(id(node.value))
        for node in source.nodes:  # a name that is passed on may be used in any way
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                owner = path if node.id.startswith("_") else ""
                if id(node) not in called:
                    found.setdefault((owner, node.id), set()).add("passed")
    return found


def expressions() -> Iterator[Expression | tuple[str, int]]:
    """Yield each expression, or the place of one that is made at run time."""
    used = uses(sources())
    for path, source in sources().items():
        names = {
            id(node.value): target.id
            for node in source.nodes
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in source.nodes:
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            module, method = node.func.value, node.func.attr
            if not isinstance(module, ast.Name) or module.id != "re" or method not in _CALLS:
                continue
            try:
                pattern, flags = read(path, node)
            except NameError:
                yield path, node.lineno
                continue
            name = names.get(id(node), "")
            owner = path if name.startswith("_") else ""
            methods = used.get((owner, name), {"passed"}) if method == "compile" else {method}
            yield Expression(f"{path}:{node.lineno}", pattern, flags, not methods <= _WHOLE)


def read(path: str, call: ast.Call) -> tuple[str | bytes, int]:
    """Return the pattern and the flags of a call. Raises NameError if they are not constant."""
    parts = PurePath(path).with_suffix("").parts
    name = ".".join(("docllm", *parts) if parts[0] != "docllm" else parts)
    name = name.removesuffix(".__init__")
    values = vars(importlib.import_module(name))

    def value(node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), path, "eval"), values)  # noqa: S307

    flags = next((word.value for word in call.keywords if word.arg == "flags"), None)
    if flags is None and ast.unparse(call.func) == "re.compile" and len(call.args) > 1:
        flags = call.args[1]
    return value(call.args[0]), 0 if flags is None else int(value(flags))


ALL = list(expressions())
CONSTANT = [one for one in ALL if isinstance(one, Expression)]


@pytest.mark.parametrize("one", CONSTANT, ids=lambda one: one.place)
def test_the_form_of_an_expression_shows_that_it_is_linear(one: Expression) -> None:
    """Whoever adds an expression learns here, by file and line, what to write instead."""
    faults = Form(one.pattern, one.flags, searches=one.searches).faults()

    assert not faults, f"{one.place}: {one.pattern!r}: {'; '.join(faults)} ({ADVICE})"


@pytest.mark.parametrize("one", CONSTANT, ids=lambda one: one.place)
def test_an_expression_is_linear_over_texts_that_are_made_against_it(one: Expression) -> None:
    """The rules of form might overlook something; a measurement might too, but not the same."""
    compiled = re.compile(one.pattern, one.flags)
    call = (lambda text: searches(compiled, text)) if one.searches else compiled.fullmatch
    for attack in attacks(one.pattern, one.flags):
        assert growth(call, attack) <= LINEAR, f"{one.place} with {attack(60)!r}"


def test_expressions_that_are_made_at_run_time_are_known() -> None:
    """Only constant ones can be judged by their form; each other one has a reason."""
    made = {one[0] for one in ALL if not isinstance(one, Expression)}

    assert made == set(MADE), f"write a constant expression, or the reason here ({ADVICE})"


def test_functions_of_re_are_called_by_their_module() -> None:
    """An imported function, or another name of the module, would not be found above."""
    for path, source in sources().items():
        for node in source.nodes:
            assert not (isinstance(node, ast.ImportFrom) and node.module == "re"), path
            if isinstance(node, ast.Import):
                assert all(alias.name != "re" or not alias.asname for alias in node.names), path


# The expressions that once asked whether a document is a page, and what encoding it declares.
PAGE = r"\ufeff?(?:\s|<!--.*?-->|<\?xml[^>]*>)*<(?:!doctype\s+html|html|head|body)[\s>/]"
DECLARED = rb"<meta[^>]*charset\s*=\s*[\"']?\s*([\w.:-]+)|<\?xml[^>]*encoding\s*=\s*[\"']([\w.:-]+)"
SLOW: list[tuple[str | bytes, bool, str]] = [
    (PAGE, False, DIVIDES),
    (DECLARED, True, REREADS),
    (DECLARED, False, DIVIDES),
    (r"(a+)+!", False, DIVIDES),
    (r"(?:a|a)*!", False, DIVIDES),
    (r"a*a*!", False, DIVIDES),
    (r"(?:a{0,9}){0,9}!", False, DIVIDES),
    (r"(?>a*a*!)", False, DIVIDES),
    (r"(?>(?:a+b?)*)!", False, DIVIDES),
    (r"(?>(?:a|a)*!)", False, DIVIDES),
    (r"(?:a|a)*", False, DIVIDES),
    (r"(?:ab)*+!", False, GROUPS),
    (r"(?:a(?!b))?+!", False, GROUPS),
    (r"(?=a*a*!)x", False, DIVIDES),
    (r".*=.*;", False, DIVIDES),
    (r"(.*?,){11}P", False, DIVIDES),
    (r"\s++!", True, REREADS),
    (r"\w++@", True, REREADS),
    (r"x[^>]*+>", True, REREADS),
    (r"(?:a++)?a++!", True, REREADS),
    (r"(?m)^\s++!", True, REREADS),
    (r"x(?=[^>]*+>)", True, REREADS),
    (r"(?>(?:x[^>]*+>|x)*)!", False, REPEATED),
    (r"(?>(?:(?:x[^>]*+>)?[a-z])*)!", False, REPEATED),
    (r"(?>(?:(?=.*+!).)*)", False, REPEATED),
    (r"(\w*)=\1!", False, REFERS),
]
LINEAR_ONES: list[tuple[str | bytes, bool]] = [
    (r"\d+", True),
    (r"[a-z]+", False),
    (r"(?>(?:ab++)*)c", False),
    (r"a{1,300}b", True),
    (r"\A\s++x", True),
    (r"(?m)^[^\n]*+x", True),
    (r"(?i)\b\w++@", True),
    (r"(?<!\w)\w++@", True),
    (r"<[^<>]*+>", True),
    (r"(?>(?:x[^x>]*+>|y)*)!", False),
    (rb"<(?:meta|(\?xml))([^>]*+)", True),
]


@pytest.mark.parametrize(("pattern", "is_search", "advice"), SLOW, ids=range(len(SLOW)))
def test_a_slow_expression_is_refused_with_advice(
    pattern: str | bytes, *, is_search: bool, advice: str
) -> None:
    """The first two once stopped agents; each other one is the smallest of its kind."""
    assert advice in Form(pattern, searches=is_search).faults()


@pytest.mark.parametrize(("pattern", "is_search"), LINEAR_ONES, ids=range(len(LINEAR_ONES)))
def test_a_linear_expression_is_not_refused(pattern: str | bytes, *, is_search: bool) -> None:
    """A rule that refused these would be in the way."""
    assert not Form(pattern, searches=is_search).faults()


@pytest.mark.parametrize(
    "pattern", [r"(a+)+!", r"(?:a|a)*!", r"a*a*!", r"(?>(?:x[^>]*+>|x)*)!", r".*=.*;"]
)
def test_the_texts_against_an_expression_find_slow_ones(pattern: str) -> None:
    """A measurement that could not fail would show nothing."""
    compiled = re.compile(pattern)

    def is_slow(attack: Attack) -> bool:
        try:
            return growth(compiled.fullmatch, attack, limit_s=0.2) > LINEAR
        except EndlessError:
            return True

    assert any(map(is_slow, attacks(pattern)))
