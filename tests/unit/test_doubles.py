"""Doubles of tests know what they stand for."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.support.clock import HandClock
from tests.support.doubles import double_of, stand_in

ROOT = Path(__file__).parents[2]
CLASS = re.compile(r"^ *class (\w+)", re.MULTILINE)
ANSWERS_ALL = {"Mock", "MagicMock", "AsyncMock", "NonCallableMock", "PropertyMock"}
CALLED = {*ANSWERS_ALL, "cast"}


@cache
def calls() -> Sequence[tuple[str, str, ast.Call]]:
    """Return each call of a mock or of `cast`: its place, the last part of its name, itself."""
    return tuple(_calls())


def _calls() -> Iterator[tuple[str, str, ast.Call]]:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text()
        if not any(name in text for name in CALLED):  # most files, which need not be parsed
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                if name in CALLED:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", name, node


def test_no_double_answers_what_its_original_would_not() -> None:
    """A mock without a specification keeps a test green after a method was renamed."""
    unspecified = [
        f"{place}: give {name} a spec, use create_autospec, or write a small class in tests/support"
        for place, name, node in calls()
        if name in ANSWERS_ALL and not {"spec", "spec_set"} & {word.arg for word in node.keywords}
    ]
    assert unspecified == []


def test_no_namespace_passes_for_another_type() -> None:
    """A namespace that is cast keeps a test green after a method was renamed, too."""
    cast = [
        f"{place}: use double_of of tests/support/doubles.py"
        for place, name, node in calls()
        if name == "cast" and "SimpleNamespace(" in ast.unparse(node)
    ]
    assert cast == []


def test_no_double_passes_unseen_for_a_class_of_the_project() -> None:
    """A cast hides that the class has no such method; None has no methods that it could hide."""
    classes = {
        name
        for package in ("agent", "producer", "schemas")
        for path in (ROOT / package).rglob("*.py")
        for name in CLASS.findall(path.read_text())
    }
    cast = [
        f"{place}: use stand_in of tests/support/doubles.py"
        for place, name, node in calls()
        if name == "cast"
        and ast.unparse(node.args[0]).strip("'") in classes
        and ast.unparse(node.args[1]) != "None"
    ]
    assert cast == []


def test_a_stand_in_has_methods_of_its_original_only() -> None:
    """Its data may be its own, so that a test can set and read them."""

    class Stopped:
        at_s = 3.0

        def now_s(self) -> float:
            return self.at_s

    class Renamed(Stopped):
        def wake(self) -> None: ...

    assert stand_in(HandClock, Stopped()).now_s() == 3.0
    with pytest.raises(AttributeError, match="HandClock has no wake"):
        stand_in(HandClock, Renamed())


def test_a_double_has_members_of_its_original_only() -> None:
    """A member that the original lacks is refused; those that are left out are missing."""
    clock = double_of(HandClock, now_s=lambda: 3.0)

    assert clock.now_s() == 3.0
    assert not hasattr(clock, "sleep")
    with pytest.raises(AttributeError, match="HandClock has no wake"):
        double_of(HandClock, wake=None)
