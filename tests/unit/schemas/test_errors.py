"""Each error carries the exit code of the program that it ends."""

import pytest

from docllm.schemas.errors import (
    ConfigError,
    DeniedError,
    DocllmError,
    InputError,
    UnreachableError,
    UnsafeStateError,
)


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (InputError, 1),
        (ConfigError, 2),
        (UnreachableError, 3),
        (DeniedError, 3),
        (UnsafeStateError, 4),
        (DocllmError, 5),
    ],
)
def test_an_error_says_who_has_to_act(error: type[DocllmError], exit_code: int) -> None:
    """Scripts rely on these numbers."""
    assert error("text").exit_code == exit_code


def test_a_refused_right_is_an_outage_too() -> None:
    """Whoever waits for a server to come back also meets a server that refuses a right."""
    assert issubclass(DeniedError, UnreachableError)
