"""The type of planted bugs."""

import ast
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache
from types import ModuleType
from typing import Any
from unittest.mock import patch

from tests.simulation.plan import Plan


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
    that the bug is about has moved, and replacing the name could plant nothing.
    """
    assert _defines(owner, name), (
        f"{owner} does not define {name}: replace it in the module or class that defines it now"
    )
    return patch.object(owner, name, value)


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
