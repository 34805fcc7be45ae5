"""Any text in a DOCX file is read, or named among what was left out, whatever elements hold it."""

import pytest

from docllm.agent.documents.conversion.docx import text_of_docx
from docllm.schemas.text.document_text import NoTextError
from tests.support.made_documents import made_docx, paragraph, related, zipped

SPACES = " ".join(
    f'xmlns:{prefix}="http://schemas.{address}"'
    for prefix, address in {
        "mc": "openxmlformats.org/markup-compatibility/2006",
        "r": "openxmlformats.org/officeDocument/2006/relationships",
        "a": "openxmlformats.org/drawingml/2006/main",
        "c": "openxmlformats.org/drawingml/2006/chart",
        "dgm": "openxmlformats.org/drawingml/2006/diagram",
        "m": "openxmlformats.org/officeDocument/2006/math",
        "wp": "openxmlformats.org/drawingml/2006/wordprocessingDrawing",
        "wps": "microsoft.com/office/word/2010/wordprocessingShape",
        "w14": "microsoft.com/office/word/2010/wordml",
    }.items()
)
VML = 'xmlns:v="urn:schemas-microsoft-com:vml" xmlns:o="urn:schemas-microsoft-com:office:office"'
WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
KEPT, AID = "<w:r><w:t>kept</w:t></w:r>", "<w:r><w:t>aid</w:t></w:r>"
DRAWN = "<a:p><a:r><a:t>kept</a:t></a:r></a:p>"
BOX = f"<w:txbxContent>{paragraph('kept')}</w:txbxContent>"
CHART = (
    f"<c:chartSpace {SPACES}><c:chart><c:title><c:tx><c:rich>{DRAWN}</c:rich></c:tx></c:title>"
    "<c:ser><c:tx><c:strRef><c:f>Sheet1!A</c:f><c:strCache><c:pt><c:v>Sales</c:v></c:pt>"
    "</c:strCache></c:strRef></c:tx><c:val><c:numRef><c:numCache><c:formatCode>General"
    "</c:formatCode><c:pt><c:v>4.3</c:v></c:pt><c:pt><c:v>2.5</c:v></c:pt></c:numCache>"
    "</c:numRef></c:val></c:ser></c:chart></c:chartSpace>"
)


def field(data: str, result: str = "", instruction: str = "FORM") -> str:
    """Return the XML of a field of several runs."""
    return (
        f'<w:r><w:fldChar w:fldCharType="begin"><w:ffData>{data}</w:ffData></w:fldChar></w:r>'
        f"<w:r><w:instrText> {instruction} </w:instrText></w:r>"
        f'<w:r><w:fldChar w:fldCharType="separate"/></w:r>{result}'
        '<w:r><w:fldChar w:fldCharType="end"/></w:r>'
    )


def nested(tag: str, depth: int) -> str:
    """Return elements that nothing knows, one in the other."""
    opened = "".join(f'<x{n}:{tag}{n} xmlns:x{n}="urn:{n}">' for n in range(depth))
    return opened + KEPT + "".join(f"</x{n}:{tag}{n}>" for n in reversed(range(depth)))


LIST = (
    '<w:ddList><w:result w:val="1"/><w:listEntry w:val="no"/><w:listEntry w:val="kept"/></w:ddList>'
)
CHECKED = '<w:checkBox><w:default w:val="0"/><w:checked/></w:checkBox>'
BOXED = '<w14:checkbox><w14:checked w14:val="1"/></w14:checkbox>'
ALTERNATE = "<mc:AlternateContent>{}</mc:AlternateContent>"


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        (ALTERNATE.format(f'<mc:Choice Requires="w14">{KEPT}</mc:Choice>'), "kept"),
        (
            ALTERNATE.format(f"<mc:Choice>{KEPT}</mc:Choice><mc:Fallback>{KEPT}</mc:Fallback>"),
            "kept",
        ),
        (
            ALTERNATE.format(f"<mc:Choice><w:r/></mc:Choice><mc:Fallback>{KEPT}</mc:Fallback>"),
            "kept",
        ),
        (f"<w:r><w:drawing><a:graphic>{DRAWN}</a:graphic></w:drawing></w:r>", "kept"),
        (
            f"<w:r><w:drawing><wps:wsp><wps:txbx>{BOX}</wps:txbx></wps:wsp></w:drawing></w:r>",
            "kept",
        ),
        (
            f"<w:r><w:pict><v:shape {VML}><v:textbox>{BOX}</v:textbox></v:shape></w:pict></w:r>",
            "kept",
        ),
        (
            f"<w:r><w:pict><v:oval {VML}><v:textbox>{BOX}</v:textbox></v:oval></w:pict></w:r>",
            "kept",
        ),
        (
            ALTERNATE.format(
                f"<mc:Choice><w:r><w:drawing><wps:txbx>{BOX}</wps:txbx></w:drawing></w:r>"
                f"</mc:Choice><mc:Fallback><w:r><w:pict><v:shape {VML}><v:textbox>{BOX}"
                "</v:textbox></v:shape></w:pict></w:r></mc:Fallback>"
            ),
            "kept",
        ),
        (
            f'<w:r><w:pict><v:shape {VML}><v:textpath string="kept"/></v:shape></w:pict></w:r>',
            "kept",
        ),
        ('<w:fldSimple w:instr="QUOTE kept"/>', "QUOTE kept"),
        (f'<w:fldSimple w:instr="DATE">{KEPT}</w:fldSimple>', "kept"),
        (f'<w:bdo w:val="rtl"><w:dir>{KEPT}</w:dir></w:bdo>', "kept"),
        (
            f"<w:r><w:ruby><w:rt>{AID}</w:rt><w:rubyBase>{KEPT}</w:rubyBase></w:ruby></w:r>",
            "kept",
        ),
        (nested("x", 4), "kept"),
        (nested("x", 40), "kept"),
        (field(LIST), "kept"),
        (field(LIST, KEPT), "kept"),
        (field(CHECKED, instruction="FORMCHECKBOX"), "☒"),
        (field("", instruction=r"EQ \f(1,2)"), r"EQ \f(1,2)"),
        (field("", KEPT, instruction="MERGEFIELD x"), "kept"),
        (f"<w:sdt><w:sdtPr>{BOXED}</w:sdtPr><w:sdtContent/></w:sdt>", "☒"),
        (f"<w:sdt><w:sdtPr>{BOXED}</w:sdtPr><w:sdtContent>{KEPT}</w:sdtContent></w:sdt>", "kept"),
        ('<w:r><w:sym w:font="Symbol" w:char="F061"/></w:r>', "\N{GREEK SMALL LETTER ALPHA}"),
        ('<w:r><w:rPr><w:rFonts w:ascii="Wingdings"/></w:rPr><w:t>\uf0fe</w:t></w:r>', "☑"),
        (f"<w:customXml><w:smartTag>{KEPT}</w:smartTag></w:customXml>", "kept"),
        (f"<w:moveTo>{KEPT}</w:moveTo><w:del>{KEPT}</w:del>", "kept"),
        ("<m:oMath><m:r><m:t>kept</m:t></m:r></m:oMath>", "kept"),
        ("<x:new xmlns:x='urn:x'>kept</x:new>", "kept"),
        ("<w:r><w:t>ke</w:t></w:r><w:r><w:t>pt</w:t><w:tab/></w:r>", "kept"),
    ],
    ids=range(29),
)
def test_text_is_read_once_whatever_holds_it(inner: str, text: str) -> None:
    """A box follows the paragraph that it is in."""
    body = f"<w:p {SPACES}><w:r><w:t>a </w:t></w:r>{inner}<w:r><w:t> b</w:t></w:r></w:p>"

    read = text_of_docx(made_docx(body=body))

    assert read.text.split() == ["a", *text.split(), "b"] or read.text == f"a b\n\n{text}"
    assert read.omitted == ()


def test_a_form_for_other_readers_is_read_if_it_says_something_else() -> None:
    """Which form Word shows depends on its version."""
    forms = f"<mc:Choice>{KEPT}</mc:Choice><mc:Fallback>{{}}</mc:Fallback>"
    other = forms.format("<w:r><w:t>other</w:t></w:r>")
    body = f"<w:p {SPACES}>{ALTERNATE.format(forms.format(KEPT))}{ALTERNATE.format(other)}</w:p>"

    assert text_of_docx(made_docx(body=body)) == ("keptkept\n\nother", ())


def part(kind: str, content: str, element: str = "", target: str = "x/part1.xml") -> bytes:
    """Return a DOCX that refers to a part."""
    files = {
        "word/_rels/document.xml.rels": related(kind, p1=target),
        f"word/{target}": content.encode(),
    }
    return made_docx("a", body=f"<w:p {SPACES} {VML}><w:r>{element}</w:r></w:p>", files=files)


HEADER = f"<w:hdr {WORD}>{paragraph('kept')}</w:hdr>"
NOTE = f'<w:footnotes {WORD}><w:footnote w:id="2">{paragraph("kept")}</w:footnote></w:footnotes>'
COMMENT = f'<w:comments {WORD}><w:comment w:id="1">{paragraph("x")}</w:comment></w:comments>'
DIAGRAM = f"<dgm:dataModel {SPACES}><dgm:pt><dgm:t>{DRAWN}</dgm:t></dgm:pt></dgm:dataModel>"
CHART_LINK = '<c:chart r:id="p1"/>'


@pytest.mark.parametrize(
    ("raw", "text", "omitted"),
    [
        (part("header", HEADER), "kept\n\na", ()),
        (part("footer", HEADER), "a\n\nkept", ()),
        (part("footnotes", NOTE, '<w:footnoteReference w:id="2"/>'), "a\n\n[1]\n\n[1] kept", ()),
        (part("footnotes", NOTE), "a\n\nkept", ()),
        (part("comments", COMMENT, target="comments.xml"), "a", ("1 comment",)),
        (part("chart", CHART, CHART_LINK), "a\n\nkept\nSales\n4.3 | 2.5", ()),
        (part("chart", "<c/>", CHART_LINK), "a", ("1 chart",)),
        (part("diagramData", DIAGRAM, '<dgm:relIds r:dm="p1"/>'), "a\n\nkept", ()),
        (part("new", HEADER, '<w:new r:id="p1"/>'), "a", ("word/x/part1.xml",)),
        (
            made_docx("a", files={"word/document2.xml": HEADER.encode()}),
            "a",
            ("word/document2.xml",),
        ),
        (made_docx("a", files={"x.xml": b"<t>no XML"}), "a", ("x.xml",)),
        (made_docx("a", files={"word/glossary/document.xml": HEADER.encode()}), "a", ()),
        (
            part("oleObject", "\0", '<o:OLEObject r:id="p1"/>', "embeddings/o.bin"),
            "a",
            ("1 embedded file",),
        ),
        (
            part("control", "\0", '<w:control r:id="p1"/>', "activeX/a.bin"),
            "a",
            ("1 embedded file",),
        ),
        (part("subDocument", "\0", '<w:subDoc r:id="p1"/>'), "a", ("subDoc 1",)),
        (made_docx("a", body=f'<w:subDoc {SPACES} r:id="p2"/>'), "a", ("subDoc 1",)),
        (part("image", "\0", '<a:blip r:embed="p1"/>', "media/i.png"), "a", ()),
    ],
    ids=range(17),
)
def test_text_in_other_parts_is_read_or_named(
    raw: bytes, text: str, omitted: tuple[str, ...]
) -> None:
    """A part that nothing reads is named if it has elements of text."""
    assert text_of_docx(raw) == (text, omitted)


def test_the_text_of_linked_files_is_named() -> None:
    """An object may stand in another file, of which the document shows a picture."""
    links = related("oleObject", external=True, p1="file:///a.xlsx")
    body = f'<w:p {SPACES} {VML}><w:r><w:object><o:OLEObject r:id="p1"/></w:object></w:r></w:p>'
    raw = made_docx("a", body=body, files={"word/_rels/document.xml.rels": links})

    assert text_of_docx(raw) == ("a", ("1 linked file",))


def test_a_paragraph_with_a_deleted_mark_goes_on() -> None:
    """And an item of a list gets a bullet, by its own or by its style's numbering."""
    deleted = "<w:p><w:pPr><w:rPr><w:del/></w:rPr></w:pPr><w:r><w:t>one </w:t></w:r></w:p>"
    own = '<w:numPr><w:numId w:val="1"/></w:numPr>'
    item = f"<w:p><w:pPr>{{}}</w:pPr>{KEPT}</w:p>"
    style = f'<w:style w:styleId="{{}}"><w:name w:val="{{}}"/>{own}</w:style>'
    both = style.format("L", "List") + style.format("H", "heading 1")
    styles = f"<w:styles {WORD}>{both}</w:styles>"
    body = deleted + paragraph("line") + item.format(own) * 2
    body += item.format('<w:pStyle w:val="L"/>') + item.format('<w:pStyle w:val="H"/>')
    files = {"word/_rels/document.xml.rels": related("styles", s1="styles.xml")}

    read = text_of_docx(made_docx(body=body, files=files | {"word/styles.xml": styles.encode()}))

    assert read.text == "one line\n\n- kept\n- kept\n- kept\n\nkept"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b'<!DOCTYPE a [<!ENTITY x "y">]><w:document/>', "declares entities"),
        (f"<w:other {WORD}/>".encode(), "main part is no document"),
        (b"<w:document>", "broken DOCX"),
    ],
    ids=range(3),
)
def test_a_main_part_that_is_none_is_refused(raw: bytes, problem: str) -> None:
    """An entity of another file would be left out without a word."""
    with pytest.raises(NoTextError, match=problem):
        text_of_docx(zipped({"word/document.xml": raw}))


@pytest.mark.parametrize("element", ["w:p", "x"])
def test_elements_in_each_other_are_bounded(element: str) -> None:
    """Each box in a box would be copied once more."""
    body = f"<{element}>" * 20_000 + paragraph("a") + f"</{element}>" * 20_000

    with pytest.raises(NoTextError, match="nested too deeply"):
        text_of_docx(made_docx(body=body))
