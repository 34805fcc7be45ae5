"""Batch names, whether typed, taken from a file name, or sent by a producer."""

import pytest

from docllm.schemas.task.batch_name import MAX_BYTES, is_batch_name


@pytest.mark.parametrize("name", ["a", "invoices 2026", "é" * (MAX_BYTES // 2), "a" * MAX_BYTES])
def test_printable_names_of_limited_length_are_taken(name: str) -> None:
    """The limit counts bytes, because the database compares names byte by byte."""
    assert is_batch_name(name)


@pytest.mark.parametrize(
    "name", ["", " ", " a", "a\n", "a\tb", "\x1b[31m", "é" * (MAX_BYTES // 2 + 1), "\u202e"]
)
def test_other_names_are_refused(name: str) -> None:
    """Names are shown on terminals and written into file names."""
    assert not is_batch_name(name)
