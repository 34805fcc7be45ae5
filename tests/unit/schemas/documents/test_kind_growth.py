"""The first bytes of a document are looked at in linear time, whatever they are."""

import pytest

from docllm.schemas.documents.encoding import page_text
from docllm.schemas.documents.kind import Kind, is_page, kind_of
from tests.support.growth import LINEAR, growth

# Pieces of which a nasty head is made: each asks the reader to look far ahead, and then again.
PIECES = [
    "<!---->",
    "<!-->",
    "<!--->",
    "<!-- -- -->",
    "<!--",
    "<!-",
    "-->",
    "-",
    "<?xml?>",
    "<?xml ",
    "<?xml encoding=",
    "<?xml encoding",
    "<",
    ">",
    " ",
    "\n",
    "\ufeff",
    "<!doctype ",
    "<!doctype html",
    "<html",
    "<meta ",
    "<meta charset=",
    "<meta charset= ",
    "<meta charset='",
    "charset",
    "charset =",
    "=",
    '"',
    "a",
    "\u3000",
]
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-32"]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("piece", PIECES)
def test_sixty_pieces_of_a_head_do_not_stop_its_reader(piece: str, encoding: str) -> None:
    """A file of some hundred bytes once took for ever: each comment doubled the time."""

    def read(raw: bytes) -> None:
        kind_of(raw)
        page_text(raw)

    for end in ("hello", "<"):

        def made(n: int, end: str = end) -> bytes:
            return (piece * n + end).encode(encoding)

        assert growth(read, made) <= LINEAR


@pytest.mark.parametrize("piece", PIECES)
def test_a_head_is_asked_for_a_page_in_linear_time(piece: str) -> None:
    """The expression itself is linear; that only 4,096 bytes are asked is a second bound."""
    for end in ("hello", "<html", "\ufffd"):

        def made(n: int, end: str = end) -> str:
            return piece * n + end

        assert growth(is_page, made) <= LINEAR


@pytest.mark.parametrize("blank", [" ", "\n", "\t"])
def test_declarations_between_blanks_are_found_in_linear_time(blank: str) -> None:
    """Many beginnings of a declaration, each before the same blanks, are no product of both."""
    for middle in ("charset=", "charset", "charset='", "charset = '"):

        def made(n: int, middle: str = middle) -> bytes:
            return (f"<p>{'<meta ' * (n // 4)}{middle}{blank * n}").encode("latin-1") + b"\xe9"

        assert growth(page_text, made) <= LINEAR


@pytest.mark.parametrize(
    "head",
    [
        "<!-- a -- b --><html>",
        "<!-- a --> <!---->\n<?xml version='1.0'?>\n<!DOCTYPE html>",
        "<!-- <html> --><body>",
        "<!-- > -><- --><head>",
        "<!-- ---><html>",
        "<!---->" * 500 + "<html>",
    ],
)
def test_a_page_after_comments_is_a_page(head: str) -> None:
    """Comments of any form may come before a page's first tag."""
    assert kind_of(head.encode()) is Kind.HTML


@pytest.mark.parametrize("head", ["<!-- a <html>", "<!-- a -- > <html>", "<!---->x<html>"])
def test_text_that_has_comments_alone_is_no_page(head: str) -> None:
    """A tag within a comment, or after other text, begins no page."""
    assert kind_of(head.encode()) is Kind.TEXT


def test_the_first_declaration_that_has_a_name_counts() -> None:
    """A word such as `charset` without a value is no declaration."""
    raw = b"<meta name=charset content=x><meta x='charset' charset=koi8-r><p>\xc1"
    assert page_text(raw).text.endswith("а")  # noqa: RUF001 - it is the Cyrillic letter
