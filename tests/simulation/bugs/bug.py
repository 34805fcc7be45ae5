"""What a planted bug is."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch


@dataclass(frozen=True, slots=True)
class Bug:
    """`promise` is the one whose checker must speak; `plant` breaks the product while it is entered."""

    promise: str
    plant: Callable[[], AbstractContextManager[Any]]


def replaced(owner: object, name: str, value: object) -> Callable[[], AbstractContextManager[Any]]:
    """Return what plants `value` in the place of an attribute."""
    return lambda: patch.object(owner, name, value)
