"""Pages become text: blocks on lines, rows with their cells, and nothing that is not shown."""

import pytest

from docllm.agent.documents.conversion.html import text_of_html


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
        ("<a href='x'>link</a> <img src=i alt=picture> <!-- note -->", "link"),
        ("", ""),
        ("\u2028 text", "text"),
    ],
)
def test_a_page_becomes_text_as_a_person_sees_it(page: str, text: str) -> None:
    """What stands apart on the page stands apart in the text."""
    assert text_of_html(f"<!doctype html>{page}".encode()).text == text


def test_a_page_may_be_nested_deeply() -> None:
    """No recursion ends at a few thousand elements inside each other."""
    assert text_of_html(b"<html>" + b"<div>" * 5000 + b"deep").text == "deep"
