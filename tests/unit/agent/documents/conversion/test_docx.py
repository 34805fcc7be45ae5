"""DOCX files become text with their tables; archives that would fill the memory are refused."""

import socket

import pytest

from docllm.agent.documents.conversion.docx import text_of_docx
from docllm.schemas.text.document_text import NoTextError
from tests.support.made_documents import (
    linked,
    linked_image,
    made_docx,
    paragraph,
    table,
    zipped,
)


def test_paragraphs_and_tables_become_text_in_their_order() -> None:
    """A table stands where the author put it, with a line for each row."""
    body = table(["Name", "Sum"], ["Ada", "7 €"])
    assert (
        text_of_docx(made_docx("Before & then", body=body)).text
        == "Before & then\n\nName | Sum\nAda | 7 €"
    )


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"PK\x03\x04word/document.xml", "a broken DOCX file"),
        (made_docx("a")[:-40], "a broken DOCX file"),
        (zipped({"word/document.xml": b"<a/>"}), "a broken DOCX file"),
        (made_docx("a", files={"word/styles.xml": bytes(65 << 20)}), "at most 10000 files with"),
        (made_docx("a", files={f"{n}": b"" for n in range(10_001)}), "at most 10000 files with"),
    ],
)
def test_a_file_that_is_broken_or_too_large_is_refused(raw: bytes, problem: str) -> None:
    """The error says what is wrong before anything large is unpacked."""
    with pytest.raises(NoTextError, match=problem):
        text_of_docx(raw)


@pytest.mark.parametrize("name", ["word/document.bin", "word/media/image1.png"])
@pytest.mark.parametrize("blanks", ["", "\ufeff", " " * 100])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be"])
def test_a_document_with_another_name_is_no_larger(name: str, blanks: str, encoding: str) -> None:
    """Relationships may name any part as the document."""
    large = (f"{blanks}<w:document" + " " * (65 << 20)).encode(encoding)

    with pytest.raises(NoTextError, match="at most 10000 files with"):
        text_of_docx(made_docx("a", files={name: large}))


def test_media_is_never_unpacked() -> None:
    """A small text with large images is read."""
    media = {"word/media/image1.png": b"\x89PNG", "word/embeddings/1.bin": b"PK"}
    raw = made_docx("small", files={name: head + bytes(99 << 20) for name, head in media.items()})

    assert text_of_docx(raw) == ("small", ("1 embedded file",))


def test_an_image_elsewhere_is_never_fetched() -> None:
    """A document that names an image by an address, or by a file, reaches neither."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/x.png"
        raw = made_docx(
            "before",
            body=linked_image("r1") + linked_image("r2") + paragraph("after"),
            files={"word/_rels/document.xml.rels": linked(r1=address, r2="file:///etc/hostname")},
        )

        assert text_of_docx(raw) == ("before\n\nafter", ())
        with pytest.raises(BlockingIOError):
            listener.accept()
