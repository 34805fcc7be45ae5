"""Error texts and fingerprints."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.policy import fingerprint, one_line


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Rate limit: 5000 used, wait 1.2s", "Rate limit: 77 used, wait 30s"),
        ("no task 550e8400-e29b-41d4-a716-446655440000", "no task 123e4567-e89b-12d3-a456-426614174000"),
        ('model "gpt-a" is gone', 'model "llama" is gone'),
        ("model 'gpt-a' is gone", "model `llama` is gone"),
        ("request req_abc123 failed", "request req_zz9 failed"),
        ("at 0xdeadbeef", "at 0xcafebabe"),
        ("object deadbeefcafe", "object 0123456789ab"),
        ("Bad  Gateway", "bad gateway"),
    ],
)
def test_what_differs_in_particulars_has_one_fingerprint(one: str, other: str) -> None:
    """Numbers, ids, quoted text, blanks and capitals do not change a fingerprint."""
    assert fingerprint("SERVER", one) == fingerprint("SERVER", other)


def test_what_differs_in_kind_has_another_fingerprint() -> None:
    """The class and the words change a fingerprint."""
    prints = {fingerprint("SERVER", "bad gateway"), fingerprint("RATE", "bad gateway"), fingerprint("SERVER", "timeout")}

    assert len(prints) == 3


def test_fingerprints_stay_the_same_over_releases() -> None:
    """A fingerprint is stored, so its value is fixed."""
    assert fingerprint("RATE", "429: wait 3 s").hex() == "c800d1b3844ba82d2934ac0da031c8cd"


@pytest.mark.parametrize("filler", ["a", "1", "'", '"', "#", "sk-", "x1 ", "a-", "bearer ", "_"])
def test_long_texts_take_no_time(filler: str) -> None:
    """No pattern backtracks: a hostile text of a megabyte is done with in a moment."""
    began = time.perf_counter()

    one_line(filler * 1_000_000)
    fingerprint("SERVER", filler * 1_000_000)

    assert time.perf_counter() - began < 1.0


@given(st.text())
def test_a_text_fits_one_line(text: str) -> None:
    """Whatever the text, what is shown is one printable line of at most 500 characters, and has a fingerprint."""
    shown = one_line(text)

    assert len(shown) <= 500
    assert len(shown.splitlines()) <= 1
    assert len(fingerprint("SERVER", text)) == 16


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-Abc_123456",
        "sk-ant-api03-xyzxyz",
        "gsk_abcdefgh",
        "hf_abcdefgh",
        "AIzaSyABCDEFGH",
        "Bearer abc.def-123",
        "api_key=abcdef123",
    ],
)
def test_keys_are_masked(secret: str) -> None:
    """What looks like a key does not stay in a text."""
    assert one_line(f"failed with {secret}, sorry") == "failed with ***, sorry"
