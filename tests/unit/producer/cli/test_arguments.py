"""Types of command-line arguments."""

import argparse

import pytest

from producer.cli import arguments


@pytest.mark.parametrize(("text", "found"), [("50/s", 50.0), ("50", 50.0), ("0.5/s", 0.5)])
def test_a_rate_is_read(text: str, found: float) -> None:
    """A rate is a number, with or without its unit."""
    assert arguments.per_second(text) == found


@pytest.mark.parametrize("text", ["", "0", "-1/s", "fast", "1/m", "inf", "nan"])
def test_an_invalid_rate_is_refused(text: str) -> None:
    """The error for an invalid rate shows a valid one."""
    with pytest.raises(argparse.ArgumentTypeError, match="write for example 50/s"):
        arguments.per_second(text)
