"""What a planted bug is."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from tests.simulation.plan import Plan


@dataclass(frozen=True, slots=True)
class Bug:
    """`promise` is the one whose checker must speak; `plant` breaks the product while it is entered.

    `stage`: fields of a plan that are set where the bug needs more of something than most plans have.
    """

    promise: str
    plant: Callable[[], AbstractContextManager[Any]]
    stage: dict[str, Any] = field(default_factory=dict)

    def staged(self, plan: Plan) -> Plan:
        """Return the plan with the bug's stage."""
        return replace(plan, **self.stage)


def replaced(owner: object, name: str, value: object) -> Callable[[], AbstractContextManager[Any]]:
    """Return what plants `value` in the place of an attribute."""
    return lambda: patch.object(owner, name, value)
