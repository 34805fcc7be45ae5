"""Text is decoded by its byte order mark, its own declaration, or its language."""

import codecs

import pytest

from docllm.schemas.documents.encoding import decoded_text, page_text
from docllm.schemas.documents.kind import Kind, kind_of
from docllm.schemas.text.document_text import NoTextError
from tests.support.languages import ENCODINGS, SENTENCES

SIZES = 200, 600, 2500


def of_size(text: str, encoding: str, size: int) -> str:
    """Return a text of about `size` bytes in an encoding, without what the encoding lacks."""
    text = (text + "\n") * (size // len(text) + 1)
    return text.encode(encoding, "ignore")[:size].decode(encoding, "ignore")


@pytest.mark.parametrize("language", ENCODINGS)
def test_a_text_is_read_right_or_named_as_uncertain(language: str) -> None:
    """What its letters do not tell is said; most texts of half a page tell."""
    unsure = 0
    for encoding in ENCODINGS[language].split():
        for size in SIZES:
            text = of_size(SENTENCES[language], encoding, size)
            read = decoded_text(text.encode(encoding))
            assert read.text == text or read.omitted, (encoding, size)
            assert read.text == text, (encoding, size)
            unsure += bool(read.omitted) and size > min(SIZES)
    assert not unsure


WEST, EAST = SENTENCES["German"], SENTENCES["Russian"]


@pytest.mark.parametrize(
    ("raw", "text", "omitted"),
    [
        (f"{WEST}\n".encode() + b"caf\xe9", f"{WEST}\ncafé", "1 byte that are not UTF-8, read as"),
        (codecs.BOM_UTF8 + b"a \xe9", "a é", "1 byte that are not UTF-8, read as cp1252"),
        (f"{EAST}\n".encode() + b"\x93a\x94", f"{EAST}\n“a”", "2 bytes that are not UTF-8"),
        (
            f"{WEST}\n".encode() + 9 * f"{WEST}\n".encode("cp1252"),
            10 * f"{WEST}\n",
            "encoding guessed: cp1252; save as UTF-8 to be certain",
        ),
        (
            WEST.encode("cp1252") + b"\x81",
            WEST + "\ufffd",
            "encoding guessed: cp1252; save as UTF-8",
        ),
        (b"\xed\xa0\xbd\xed\xb8\x80 gr\xc3\xbcn", "😀 grün", ""),
        (b"only one word: na\xefve", "only one word: naïve", "encoding guessed: cp1252; save as"),
        (b"\xcf\xf0\xe8\xe2\xe5\xf2", "Привет", "encoding guessed: cp1251; save as"),
    ],
    ids=range(8),
)
def test_what_may_be_wrong_is_named(raw: bytes, text: str, omitted: str) -> None:
    """A few bytes that do not fit cost themselves alone."""
    read = decoded_text(raw)

    assert read.text == text
    assert "".join(read.omitted).startswith(omitted)
    assert bool(read.omitted) == bool(omitted)


@pytest.mark.parametrize("text", [EAST, SENTENCES["Chinese"] + "\n一二三", WEST, "Привет\n"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_read_in_any_language(text: str, encoding: str) -> None:
    """Some letters have a byte that is zero on the other side."""
    raw = text.encode(encoding)

    assert kind_of(raw) is Kind.UNICODE
    assert decoded_text(raw) == (text, ())


@pytest.mark.parametrize(
    ("declared", "raw", "text", "omitted"),
    [
        ("windows-1252", EAST.encode("cp1251"), EAST, "encoding guessed: cp1251, not cp1252 as"),
        ("utf-8", EAST.encode("koi8-r"), EAST, ""),
        ("utf-8", WEST.encode() + b"\xff", WEST + "ÿ", "1 byte that are not UTF-8"),
        ("windows-1251", "Привет".encode("cp1251"), "Привет", ""),
        ("shift_jis", b"\x93\xfa\x96{ \x81", "日本 \ufffd", "1 character lost, not cp932"),
    ],
)
def test_what_a_file_declares_is_doubted(
    declared: str, raw: bytes, text: str, omitted: str
) -> None:
    """Programs declare what they were told, not what they write."""
    for head in (f"<?xml version='1.0' encoding='{declared}'?>", f"<meta charset={declared}>"):
        read = decoded_text(head.encode() + raw)

        assert read.text == head + text
        assert "".join(read.omitted).startswith(omitted)
        assert bool(read.omitted) == bool(omitted)


def test_bytes_in_no_encoding_are_refused() -> None:
    """A guess would be worth nothing."""
    with pytest.raises(NoTextError, match="can be told; save it as UTF-8"):
        decoded_text(bytes(range(128, 256)) * 9)


def test_text_that_breaks_its_byte_order_mark_is_refused() -> None:
    """A byte order mark is a promise; text that breaks it is not guessed."""
    with pytest.raises(NoTextError, match="UTF-16"):
        decoded_text(b"\xff\xfea")
    with pytest.raises(NoTextError, match="zero character"):
        decoded_text("a\0b".encode("utf-16"))


@pytest.mark.parametrize(
    "raw",
    [
        '<meta charset="iso-8859-1"><p>ü €'.encode("cp1252"),
        "<META http-equiv=x content='text/html; charset=windows-1252'><p>ü €".encode("cp1252"),
        "<?xml version='1.0' encoding='cp1252'?><p>ü €".encode("cp1252"),
        "\ufeff<meta charset=koi8-r><p>ü €".encode("utf-16"),
        "<meta charset=utf-16><p>ü €".encode(),
        "<meta charset=nothing><p>ü €".encode(),
        "<meta charset=rot13><p>ü €".encode(),
        "<meta charset=punycode><p>ü €".encode(),
        "<p>ü €".encode(),
    ],
)
def test_a_page_is_decoded_as_it_says_itself(raw: bytes) -> None:
    """A byte order mark wins; an encoding that is unknown or cannot be true does not count."""
    assert page_text(raw).text.endswith("<p>ü €")


def test_a_page_with_a_wrong_byte_is_read_as_browsers_do() -> None:
    """One byte that does not fit the page's own encoding costs one character."""
    assert page_text("<meta charset=utf-8>ä".encode() + b"\xffb").text.endswith("äÿb")
