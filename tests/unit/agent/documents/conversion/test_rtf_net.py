"""Any text in an RTF document is read, or named among what was left out."""

import pytest

from docllm.agent.documents.conversion.rtf import text_of_rtf

FONTS = (
    rb"{\fonttbl{\f0\fcharset204 Arial;}{\f1\fcharset2 Symbol;}{\f2\fcharset2 Wingdings;}"
    rb"{\f3\cpg1253 Arial;}{\f4\fnil Arial CE;}{\f5\fcharset0 Arial;}}"
)
FRACTION = rb"{\mf{\mfPr{\mctrlPr}}{\mnum{\mr a+b}}{\mden{\mr 2}}}"
POWER = rb"{\msSup{\me{\mr x}}{\msup{\mr n+1}}}"
LISTED = rb"{\*\ffl no}{\*\ffl kept}"


def field(form: bytes, result: bytes = b"", instruction: bytes = b"FORM") -> bytes:
    """Return a field of a form."""
    inst = rb"{\*\fldinst " + instruction + rb"{\*\formfield{" + form + b"}}}"
    return rb"{\field" + inst + rb"{\fldrslt " + result + b"}}"


@pytest.mark.parametrize(
    ("body", "text", "omitted"),
    [
        (rb"a{\*\new kept}", "a", ("group new",)),
        (rb"a{\*\new 0a1f 22}", "a", ()),
        (rb"a{\*\new{\b kept}}{\*\new x}", "a", ("group new",)),
        (rb"kept \comment kept", "kept kept", ()),
        (rb"{a \*\new kept \*\newer kept}", "a", ("group new", "group newer")),
        (rb"a{\*\moMath{\mr x}y\moMath{\b z}}", "axyz", ()),
        (rb"a\bin99 kept", "a", ("1 piece of binary data",)),
        (rb"a{\*\footnote kept}", "a / kept", ()),
        (rb"a{\*\do\dobxpage{\dptxbxtext\pard kept}}", "a\nkept", ()),
        (rb"{\mmath{\*\moMathPara{\*\moMath" + FRACTION + b"}}}", "(a+b)/2", ()),
        (rb"x{\*\moMath" + POWER + b"}y", "xx^(n+1)y", ()),
        (rb"{\*\moMath{\md{\mdPr{\mbegChr [}{\mendChr ]}}{\me{\mr q}}}}", "[q]", ()),
        (rb"{\upr{a?}{\*\ud{\u1044?a}}}", "Дa", ()),
        (rb"{\upr{no}{\*\ud kept}} b", "kept b", ()),
        (rb"\'c4", "Д", ()),
        (rb"{\f5\'c4\plain\'c4}", "ÄД", ()),
        (rb"{\f1 a\'b7}\f5 a", "\N{GREEK SMALL LETTER ALPHA}•a", ()),
        (rb"{\f2 \'fc\u-3844?}\f5 a", "✓✓a", ()),
        (rb"\f2\'21", "!", ("1 symbol",)),
        (rb"\f3\'e1", "\N{GREEK SMALL LETTER ALPHA}", ()),
        (rb"\f4\'e8", "č", ()),
        (rb"{\header h}{\headerf h}a{\footer f}{\footerl f}", "h\n\na\n\nf", ()),
        (rb"a{\v kept}b", "ab", ("hidden text",)),
        (field(rb"\fftype2\ffres1" + LISTED), "kept", ()),
        (field(rb"\fftype2\ffres25\ffdefres1" + LISTED), "kept", ()),
        (field(rb"\fftype1\ffres1", instruction=b"FORMCHECKBOX"), "☒", ()),
        (field(rb"\fftype1\ffres25\ffdefres0", instruction=b"FORMCHECKBOX"), "☐", ()),
        (field(rb"\fftype0{\*\ffdeftext x}", b"kept"), "kept", ()),
        (field(b"", instruction=rb"EQ \\f(1,2)"), r"EQ \f(1,2)", ()),
        (rb"{\field{\*\fldinst PAGE}}a", "a", ()),
        (rb"{\shp{\*\shpinst{\shptxt in}}{\shprslt old}}", "in", ()),
        (rb"{\shp{\*\shpinst{\sp{\sn x}{\sv no}}}{\shprslt kept}}", "kept", ()),
        (rb"{\shp{\*\shpinst{\sp{\sn gtextUNICODE}{\sv kept}}}}", "kept", ()),
        (rb"{\listtext\f1\'b7\tab}a", "•\ta", ()),
        (rb"{\object{\*\objclass x}{\result kept}}", "kept", ("1 embedded file",)),
        (rb"{\*\generator x}{\*\pn{\pntxta .}}{\*\xmlopen{\factoidname y}}a", "a", ()),
    ],
    ids=range(36),
)
def test_text_is_read_or_named(body: bytes, text: str, omitted: tuple[str, ...]) -> None:
    """A group that readers may leave out is named if it has words."""
    raw = rb"{\rtf1\ansi\ansicpg1252\deff0" + FONTS + body + b"}"

    assert text_of_rtf(raw) == (text, omitted)
    assert text_of_rtf(raw[:-1]) == (text, omitted)
