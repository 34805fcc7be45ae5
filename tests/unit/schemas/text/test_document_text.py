"""The text of a document, read part by part."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.schemas.text.document_text import DocumentText, NoTextError


@given(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), st.integers(1, 5)
)
def test_a_letter_may_lie_across_two_parts(text: str, size: int) -> None:
    """The parts together give the whole text."""
    raw, reader = b"\xef\xbb\xbf" + text.encode(), DocumentText()

    parts = [reader.read(raw[at : at + size]) for at in range(0, len(raw), size)]

    assert "".join(parts) + reader.read(b"", final=True) == text


@pytest.mark.parametrize(
    ("raw", "why"), [(b"a\0b", "has a zero byte"), (b"\xff", "not UTF-8"), (b"a\xc3", "not UTF-8")]
)
def test_bytes_that_are_no_text_are_refused(raw: bytes, why: str) -> None:
    """A letter that is cut off at the end is refused too."""
    with pytest.raises(NoTextError, match=why):
        DocumentText().read(raw, final=True)
