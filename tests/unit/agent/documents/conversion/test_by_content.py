"""Text is decoded at once, all else goes to a process, and failures have a class."""

import asyncio
from pathlib import Path

import pytest

from docllm.agent.documents.conversion.by_content import DECODERS, ByContent
from docllm.agent.documents.conversion.converters import ConversionDiedError, Converters
from docllm.agent.documents.conversion.kept_texts import KeptTexts
from docllm.agent.documents.conversion.program import converter
from docllm.agent.documents.conversion.protocol import KIND_BYTES, KINDS
from docllm.agent.handlers import DocumentError
from docllm.schemas.documents.kind import Kind
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.text.document_text import NoTextError, ReadText
from tests.support.doubles import stand_in
from tests.support.made_documents import made_pdf


class Fake:
    """Converters that answer one thing."""

    def __init__(self, answer: str | Exception) -> None:
        self.answer = answer
        self.kinds: list[Kind] = []

    async def text(self, kind: Kind, raw: bytes) -> ReadText:
        self.kinds.append(kind)
        if isinstance(self.answer, Exception):
            raise self.answer
        return ReadText(self.answer)


def convert(raw: bytes, answer: str | Exception = "made") -> tuple[str, list[Kind]]:
    fake = Fake(answer)
    conversion = ByContent(executor=InlineExecutor(), converters=stand_in(Converters, fake))
    return asyncio.run(conversion.text(raw, "mem://a")).text, fake.kinds


def test_text_never_goes_to_a_process() -> None:
    """UTF-8 and byte order marks are decoded at once; a mark is no content."""
    assert convert("ü".encode()) == ("ü", [])
    assert convert("\ufeffü".encode()) == ("ü", [])
    assert convert("ü".encode("utf-16")) == ("ü", [])


def test_what_is_not_text_goes_to_a_process() -> None:
    """The document's kind is told with it."""
    assert convert(made_pdf(["a"])) == ("made", [Kind.PDF])
    assert convert("Straße".encode("cp1252")) == ("made", [Kind.OTHER_TEXT])
    assert convert(b"<!doctype html>x") == ("made", [Kind.HTML])


@pytest.mark.parametrize(
    ("error", "error_class"),
    [
        (NoTextError("is broken"), "DOCUMENT_REFUSED"),
        (ConversionDiedError("is broken", lasting=True), "DOCUMENT_REFUSED"),
        (ConversionDiedError("is broken", lasting=False), "DOCUMENT_UNREADABLE"),
    ],
)
def test_a_failure_has_the_class_of_its_cause(error: Exception, error_class: str) -> None:
    """What the document causes is final; what the machine causes is tried again."""
    with pytest.raises(DocumentError) as raised:
        convert(made_pdf(["a"]), error)

    assert (raised.value.failure.error_class, raised.value.failure.text) == (
        error_class,
        "mem://a is broken",
    )


@pytest.mark.parametrize("raw", [b"<!doctype html>404", b'{"error": "login"}'])
def test_an_error_page_under_the_name_of_a_document_is_refused(raw: bytes) -> None:
    """A server may answer with a page, and say that all is well."""
    conversion = ByContent(executor=InlineExecutor(), converters=stand_in(Converters, Fake("made")))

    with pytest.raises(DocumentError, match=r"though its name ends in \.pdf; it may be"):
        asyncio.run(conversion.text(raw, "https://docs.test/report.pdf"))
    assert asyncio.run(conversion.text(raw, "https://docs.test/report"))


def test_the_second_question_about_a_document_converts_nothing(tmp_path: Path) -> None:
    """The text is kept on disk, by content."""
    fake = Fake("made")
    kept = KeptTexts(folder=tmp_path, most_bytes=10_000)
    conversion = ByContent(
        executor=InlineExecutor(), converters=stand_in(Converters, fake), kept=kept
    )

    texts = [asyncio.run(conversion.text(made_pdf(["a"]), f"mem://{n}")).text for n in range(3)]

    assert (texts, fake.kinds) == (["made"] * 3, [Kind.PDF])


def test_a_file_that_is_no_document_is_refused_at_once() -> None:
    """No process is asked for an image."""
    with pytest.raises(DocumentError, match="mem://a is a PNG image, which is not read"):
        convert(b"\x89PNG\r\n\x1a\n\0\0")


def test_each_kind_has_one_place_that_makes_its_text() -> None:
    """A new kind is decoded in the agent, or has a byte and a converter."""
    assert DECODERS.keys().isdisjoint(KIND_BYTES)
    assert DECODERS.keys() | KIND_BYTES.keys() == set(Kind)
    assert len({converter(kind) for kind in KIND_BYTES}) == len(KIND_BYTES)
    assert len(KINDS) == len(KIND_BYTES)
    assert {len(byte) for byte in KINDS} == {1}
