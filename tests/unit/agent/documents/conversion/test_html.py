"""Pages become text: blocks on lines, rows with their cells, and nothing that is not shown."""

import pytest

from docllm.agent.documents.conversion.html import text_of_html
from docllm.schemas.text.document_text import NoTextError


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>a</p><p>b &amp; c&nbsp;d", "a\n\nb & c d"),
        ("<div>a</div>b<div>c</div>", "a\nb\nc"),
        ("a <b>b</b>c\n   d", "a bc d"),
        ("a<br>b<br><br>c", "a\nb\n\nc"),
        ("<title>T</title><h1>H</h1>x", "T\n\nH\n\nx"),
        ("a<script>x()</script><style>p{}</style><template>t</template>b", "ab"),
        ("<ul><li>a<li>b<ul><li>c</ul></ul>d", "- a\n- b\n\n- c\n\nd"),
        ("<pre>  a\n    b</pre>c", "a\n    b\n\nc"),
        (
            "x<table><tr><th>a<th>b<tr><td><p>1</p><td><p>2</p><tr><td><td>3</table>y",
            "x\n\na | b\n1 | 2\n | 3\n\ny",
        ),
        ("<table><tr><td><p>a</p><p>b</p></table>", "a\n\nb"),
        ("<a href='x'>link</a> <img src=i alt=picture> <!-- note -->", "link [picture]"),
        ("<textarea>a\n b</textarea><select><option>c<option>d</select>", "a\n b\nc\nd"),
        (
            "a <input value=b> <input type=checkbox checked> c <input type=hidden value=d>",
            "a b [x] c",
        ),
        ("<svg><title>a</title><text>b</text></svg>", "a\nb"),
        ("a<iframe srcdoc='&lt;p&gt;b'></iframe>c", "a\n\nb\n\nc"),
        ("a<div><template shadowrootmode=open>b</template></div>", "a\nb"),
        ("<p hidden>a</p><details>b</details><dialog>c</dialog>", "a\n\nb\nc"),
        ("<title>only", "only"),
        ("\u2028 text", "text"),
    ],
)
def test_a_page_becomes_text_as_a_person_sees_it(page: str, text: str) -> None:
    """What stands apart on the page stands apart in the text."""
    assert text_of_html(f"<!doctype html>{page}".encode()).text == text


def test_the_marked_text_of_xml_is_read() -> None:
    """A browser that reads XHTML as HTML shows nothing of it."""
    page = b"<?xml version='1.0'?><html><p>a <![CDATA[b <c> ]] d]]></p></html>"

    assert text_of_html(page).text == "a b <c> ]] d"


LONG = (
    "A text of some length, which needs no script to be shown, and says what there is to say. " * 2
)


@pytest.mark.parametrize(
    ("page", "omitted"),
    [
        (f"{LONG}<script>x()</script>", ()),
        ("Loading...<script>x()</script>", ("what the page's scripts add",)),
        (
            "a<iframe src=b.html></iframe><object data=c.pdf></object>",
            ("frame b.html", "frame c.pdf"),
        ),
        ("<frameset><frame src=b><noframes>a</noframes></frameset>", ("frame b",)),
        ("a<template>b</template>", ("1 template",)),
        ("a<!-- b", ("what follows a comment that does not end",)),
        (f"{LONG}<script> b", ("what follows a script that does not end",)),
    ],
    ids=range(7),
)
def test_what_a_page_does_not_hold_is_named(page: str, omitted: tuple[str, ...]) -> None:
    """Its text may be in other files, or be made by scripts."""
    assert text_of_html(page.encode()).omitted == omitted


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("<title>App</title><div id=root></div><script src=a.js></script>", "made by its scripts"),
        (
            "<body><noscript>Enable JavaScript.</noscript><script>x()</script>",
            "made by its scripts",
        ),
        ("<title>a</title><frameset><frame src=b><frame src=c></frameset>", "other files: b, c"),
        ("<embed src=a.pdf>", "other files: a.pdf"),
        ("<img src=a><img src=b>", "2 pictures and no text; run OCR"),
        ("<meta http-equiv=refresh content='0;url=/login'>", "a page without text"),
        ("&nbsp;<svg><path></svg>", "a page without text"),
    ],
    ids=range(7),
)
def test_a_page_without_text_of_its_own_is_refused(page: str, problem: str) -> None:
    """An answer about its title would say nothing of it."""
    with pytest.raises(NoTextError, match=problem):
        text_of_html(f"<html>{page}".encode())


def test_a_page_may_be_nested_deeply() -> None:
    """No recursion ends at a few thousand elements inside each other."""
    assert text_of_html(b"<html>" + b"<div>" * 5000 + b"deep").text == "deep"
