"""What a provider's error names is kept as it was sent, within bounds."""

from typing import Any

import pytest

from docllm.schemas.task.provider_error import (
    ProviderError,
    provider_error_of,
    provider_error_of_packed,
)


@pytest.mark.parametrize(
    ("part", "named"),
    [
        (
            {"message": "m", "type": "invalid_request_error", "param": "n", "code": None},
            ProviderError("invalid_request_error", "n", None),
        ),
        ({"code": 400, "type": "BadRequestError"}, ProviderError("BadRequestError", None, 400)),
        ({"type": ["a"], "param": True, "code": 1.5}, ProviderError()),
        ({"type": "x" * 192, "code": 2**60, "param": "\ud800"}, ProviderError(None, "?", None)),
        ("no object", ProviderError()),
    ],
)
def test_names_of_an_error(part: Any, named: ProviderError) -> None:
    """Texts and numbers are kept, and read back as they were."""
    assert provider_error_of(part) == named
    assert (provider_error_of_packed(named.packed()) or ProviderError()) == named


@pytest.mark.parametrize("raw", [None, b"", b"{", b"[1]", b"null"])
def test_a_stored_form_that_cannot_be_read_is_none(raw: bytes | None) -> None:
    """Whoever may write to the ledger can change it."""
    assert provider_error_of_packed(raw) is None
