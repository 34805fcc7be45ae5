"""Longer texts are stored compressed, and no stored bytes can harm their reader."""

import zlib

import pytest

from docllm.schemas.text.packed_text import MAX_CHARS, packed, text_of_packed


@pytest.mark.parametrize("text", ["", "Zeile 1\nline 2 \U0001f600", "x" * MAX_CHARS])
def test_a_text_is_read_as_it_was_stored(text: str) -> None:
    """An empty text takes no place."""
    assert text_of_packed(packed(text)) == text
    assert (packed(text) is None) == (not text)


def test_a_long_text_is_cut_and_half_a_pair_replaced() -> None:
    """Every database can store what is packed."""
    assert text_of_packed(packed("ä" * 9000)) == "ä" * MAX_CHARS
    assert text_of_packed(packed("a\ud800b")) == "a?b"


@pytest.mark.parametrize("raw", [None, b"", b"no zlib", zlib.compress(b"cut short")[:-6]])
def test_what_cannot_be_read_is_empty_or_short(raw: bytes | None) -> None:
    """A broken row ends no screen."""
    assert len(text_of_packed(raw)) <= len("cut short")


def test_a_bomb_is_not_unpacked() -> None:
    """A few bytes may stand for gigabytes."""
    assert len(text_of_packed(zlib.compress(b"x" * 10_000_000))) == MAX_CHARS
