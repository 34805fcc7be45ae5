"""The type of planted bugs."""

import ast
import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from types import FunctionType, ModuleType
from typing import Any
from unittest.mock import patch

from tests.simulation.plan import Plan

_GONE = (AttributeError, NameError, TypeError)  # what a renamed name or a new signature raises


@dataclass(frozen=True, slots=True)
class Bug:
    """A planted bug.

    `promise` is the one whose checker must find the bug. `plant` breaks the product while its
    context is entered. `stage` sets fields of a plan if the bug needs more of something than most
    plans have.
    """

    promise: str
    plant: Callable[[], AbstractContextManager[Any]]
    stage: dict[str, Any] = field(default_factory=dict)

    def staged(self, plan: Plan) -> Plan:
        """Return the plan with the bug's stage."""
        return replace(plan, **self.stage)


def patched(owner: object, name: str, value: object) -> AbstractContextManager[Any]:
    """Return a context manager that replaces an attribute of a module or class by `value`.

    The owner must define the attribute itself. Where it is only imported or inherited, the code
    that the bug is about has moved, and replacing the name could plant nothing. At its end, the
    context raises AssertionError if the planted function itself used a name that is gone: such a
    program breaks promises too, but not by the bug.
    """
    assert _defines(owner, name), (
        f"{owner} does not define {name}: replace it in the module or class that defines it now"
    )
    return _planted(owner, name, value)


@contextmanager
def _planted(owner: object, name: str, value: object) -> Iterator[object]:
    errors: list[BaseException] = []
    planted = _watched(value, errors) if isinstance(value, FunctionType) else value
    with patch.object(owner, name, planted):
        yield value
    if errors:
        raise AssertionError(
            f"what is planted as {name} is out of date: {errors[0]!r}"
        ) from errors[0]


def _watched(function: FunctionType, errors: list[BaseException]) -> Callable[..., Any]:
    """Return the function; errors that its own lines raise because a name is gone are noted."""
    own_files = {function.__code__.co_filename, __file__}  # a wrong call is raised in this file

    def note(error: BaseException) -> None:
        raised_in = list(traceback.walk_tb(error.__traceback__))[-1][0].f_code.co_filename
        if isinstance(error, _GONE) and raised_in in own_files:
            errors.append(error)

    @wraps(function)
    def watched(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except BaseException as error:
            note(error)
            raise

    @wraps(function)
    async def watched_async(*args: Any, **options: Any) -> Any:
        try:
            return await function(*args, **options)
        except BaseException as error:
            note(error)
            raise

    return watched_async if inspect.iscoroutinefunction(function) else watched


def replaced(owner: object, name: str, value: object) -> Callable[[], AbstractContextManager[Any]]:
    """Return a function that plants `value`, after a check that its place still exists."""
    patched(owner, name, value)
    return lambda: patched(owner, name, value)


def _defines(owner: object, name: str) -> bool:
    is_imported = isinstance(owner, ModuleType) and name in _imported(owner)
    return name in vars(owner) and not is_imported


@cache
def _imported(module: ModuleType) -> frozenset[str]:
    """Return the names that a module's own code imports."""
    imports = (
        node
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    return frozenset(alias.asname or alias.name for node in imports for alias in node.names)
