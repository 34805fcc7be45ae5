"""Small doubles that know what they stand for.

Tested by tests/unit/test_doubles.py.
"""

from types import SimpleNamespace
from typing import Any, TypeVar, cast

T = TypeVar("T")


def double_of(kind: Any, /, **members: Any) -> Any:
    """Return an object with these members of a class or a port, and no others.

    Raises AttributeError for a member that the class lacks, such as a method that was renamed.
    """
    for name in members:
        if not hasattr(kind, name) and name not in kind.__annotations__:
            raise AttributeError(f"{kind.__name__} has no {name}")
    return SimpleNamespace(**members)


def stand_in(kind: type[T], double: object) -> T:
    """Return a double as the class that it stands for.

    Raises AttributeError for a method of the double that the class lacks.
    """
    for own in type(double).__mro__:
        if own.__module__ == "builtins":
            continue
        for name, member in vars(own).items():
            if callable(member) and not name.startswith("_") and not hasattr(kind, name):
                raise AttributeError(f"{kind.__name__} has no {name}")
    return cast("T", double)
