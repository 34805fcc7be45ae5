"""The type of planted bugs."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
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


def replaced(owner: object, name: str, value: object) -> Callable[[], AbstractContextManager[Any]]:
    """Return a context manager that replaces an attribute by `value`."""
    return lambda: patch.object(owner, name, value)
