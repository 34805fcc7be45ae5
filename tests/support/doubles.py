"""Small doubles that know what they stand for.

Tested by tests/unit/test_doubles.py.
"""

from types import SimpleNamespace
from typing import Any


def double_of(kind: Any, /, **members: Any) -> Any:
    """Return an object with these members of a class or a port, and no others.

    Raises AttributeError for a member that the class lacks, such as a method that was renamed.
    """
    for name in members:
        if not hasattr(kind, name) and name not in kind.__annotations__:
            raise AttributeError(f"{kind.__name__} has no {name}")
    return SimpleNamespace(**members)
