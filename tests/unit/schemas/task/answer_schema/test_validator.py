"""Validators of the patterns that people write."""

import pytest

from docllm.schemas.task.answer_schema.validator import validator_of

ORDINARY = {
    "a date": (r"^\d{4}-\d{2}-\d{2}$", "2027-01-31"),
    "an address": (r"^[a-z0-9._%+-]+@[a-z0-9.-]+\.[a-z]{2,}$", "a.b@example.com"),
    "an id": (
        "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
        "01234567-89ab-cdef-0123-456789abcdef",
    ),
    "letters": (r"^\p{L}+$", "Größe"),
    "a name": (r"^[\p{L} .'-]{1,100}$", "Zoë O'Neil"),
    "a password": (r"^(?=.*\d)(?=.*[a-z]).{8,}$", "passw0rd"),
    "any case": (r"(?i)^[a-z]+\.pdf$", "A.PDF"),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_a_pattern_that_people_write_is_taken(name: str) -> None:
    """Ordinary patterns are accepted, and they work."""
    pattern, text = ORDINARY[name]

    assert validator_of({"type": "string", "pattern": pattern}).is_valid(text)
    assert not validator_of({"type": "string", "pattern": pattern}).is_valid("#")
