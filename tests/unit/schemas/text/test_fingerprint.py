"""Fingerprints: errors that are alike have the same one, in every release."""

import pytest

from docllm.agent.judge import fingerprint


@pytest.mark.parametrize(
    ("error", "other"),
    [
        ("Rate limit: 5000 used, wait 1.2s", "Rate limit: 77 used, wait 30s"),
        (
            "no task 550e8400-e29b-41d4-a716-446655440000",
            "no task 123e4567-e89b-12d3-a456-426614174000",
        ),
        ('model "gpt-a" is gone', 'model "llama" is gone'),
        ("model 'gpt-a' is gone", "model `llama` is gone"),
        ("request req_abc123 failed", "request req_zz9 failed"),
        ("at 0xdeadbeef", "at 0xcafebabe"),
        ("object deadbeefcafe", "object 0123456789ab"),
        ("Bad  Gateway", "bad gateway"),
    ],
)
def test_errors_that_differ_in_particulars_share_a_fingerprint(error: str, other: str) -> None:
    """Numbers, ids, quoted text, blanks and capitals do not change a fingerprint."""
    assert fingerprint("SERVER", error) == fingerprint("SERVER", other)


def test_errors_that_differ_in_kind_have_different_fingerprints() -> None:
    """The class and the words change a fingerprint."""
    prints = {
        fingerprint("SERVER", "bad gateway"),
        fingerprint("RATE", "bad gateway"),
        fingerprint("SERVER", "timeout"),
    }

    assert len(prints) == 3


def test_fingerprints_stay_the_same_over_releases() -> None:
    """A fingerprint is stored, so its value is fixed."""
    assert fingerprint("RATE", "429: wait 3 s").hex() == "c800d1b3844ba82d2934ac0da031c8cd"
