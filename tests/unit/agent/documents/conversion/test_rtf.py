"""RTF becomes text in its fonts' encodings, without what is not shown."""

import pytest

from docllm.agent.documents.conversion.rtf import text_of_rtf
from docllm.schemas.text.document_text import NoTextError

FONTS = (
    rb"{\fonttbl{\f0\fcharset0 Arial;}{\f1\fcharset204 Arial;}{\f2\fcharset128 Mincho;}"
    rb"{\f3 Times;}}"
)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (rb"one\par two\line three\tab x", "one\ntwo\nthree\tx"),
        (rb"a \{b\} \\ c\~d", "a {b} \\ c\u00a0d"),
        (rb"\'fcber {\b bold}{\i italic}", "über bolditalic"),
        (rb"\f1\'cf\'f0\'e8\f0 \'e9", "Приé"),
        (rb"{\f2\'93\'fa\'96\'7b}x", "日本x"),
        (rb"\f2\'83A", "ア"),
        (rb"\u8364?5 \u-10179 ?\u-8704 ? {\uc2\u228ae}x {\uc0\u228}y", "€5 😀 äx äy"),
        (rb"\u8364\'80 euro", "€ euro"),
        (rb"\f3\u228?\'e4", "ää"),
        (rb"\trowd a\cell b\cell\row c\cell d\cell\row", "a | b\nc | d"),
        (rb"{\field{\*\fldinst HYPERLINK x}{\fldrslt shown}}", "shown"),
        (rb"{\*\generator x;}{\stylesheet{\s1 Style;}}{\info{\title T}}{\colortbl;}a", "a"),
        (rb"{\header h}{\footerr f}a{\footnote see b}", "h\n\na / see b\n\nf"),
        (rb"{\pict\wmetafile8 0123abcd}a{\*\shppict{\pict 00}}{\nonshppict{\pict 00}}", "a"),
        (b"{\\pict\\bin5 }}}}}a}b", "b"),
        (rb"a{\v }b{\deleted gone}", "ab"),
        (
            rb"{\shp{\*\shpinst{\sp{\sn n}{\sv v}}{\shptxt in a box}}{\shprslt old}}",
            "in a box",
        ),
        (rb"\emdash\ldblquote a\rdblquote\bullet ", "—“a”•"),
        (rb"a\unknown1 b{\*\new 0a}", "ab"),
        (rb"a}}}b", "ab"),
        (rb"{{{a", "a"),
    ],
)
def test_rtf_becomes_text(body: bytes, text: str) -> None:
    """Control words, pictures and other groups that no reader sees are left out."""
    assert text_of_rtf(rb"{\rtf1\ansi\ansicpg1252\deff0" + FONTS + body + b"}") == (text, ())


@pytest.mark.parametrize(
    ("head", "raw", "text"),
    [
        (rb"\ansi\ansicpg1251", b"\xcf\xf0\xe8", "При"),
        (rb"\mac", rb"\'8a", "ä"),
        (rb"\pc", rb"\'84", "ä"),
        (rb"\ansi\ansicpg65001", "ü".encode(), "ü"),
        (rb"\ansi\ansicpg9999", rb"\'e4", "ä"),
    ],
)
def test_the_head_says_the_encoding(head: bytes, raw: bytes, text: str) -> None:
    """A code page that is unknown is read as that of Western Europe."""
    assert text_of_rtf(rb"{\rtf1" + head + b" " + raw + b"}").text == text


def test_what_is_not_read_is_counted() -> None:
    """Embedded files and comments may hold text."""
    raw = rb"{\rtf1 a{\object{\*\objdata 01}{\result b}}{\*\annotation c}}"

    assert text_of_rtf(raw) == ("ab", ("1 embedded file", "1 comment"))


@pytest.mark.parametrize("raw", [rb"{\rtf1}", rb"{\rtf1{\pict 00}}", rb"{\rtf", rb"{\rtf1 \bin9"])
def test_rtf_without_text_is_refused(raw: bytes) -> None:
    """It is not empty: it may show pages as pictures."""
    with pytest.raises(NoTextError, match="RTF without text"):
        text_of_rtf(raw)


def test_groups_may_be_nested_deeply() -> None:
    """No recursion ends at a thousand groups inside each other."""
    assert text_of_rtf(rb"{\rtf1 " + b"{" * 100_000 + b"deep" + b"}" * 100_000).text == "deep"
