"""A load converts documents as agents do, from the thread that reads them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import TypeVar

import pytest

from docllm.agent.documents.conversion import program
from docllm.agent.documents.conversion.kept_texts import converter_version
from docllm.agent.documents.for_load import LoadConversion
from docllm.producer.input import conversion
from docllm.producer.input.conversion import MissingExtraError
from docllm.producer.input.document_source import UnusableError
from docllm.schemas.text.document_text import NoTextError, ReadText
from tests.support.made_documents import made_docx

T = TypeVar("T")


def converted(work: Callable[[LoadConversion], T]) -> T:
    """Return what a thread makes of a conversion on a loop; the processes end with it."""

    async def main() -> T:
        converting = LoadConversion(asyncio.get_running_loop())
        try:
            return await asyncio.to_thread(work, converting)
        finally:
            await converting.close()

    return asyncio.run(main())


def test_several_documents_are_converted_at_once() -> None:
    """Each call begins one; the texts come when they are asked for."""
    documents = [made_docx(f"word {number}") for number in range(3)]

    def work(converting: LoadConversion) -> list[ReadText]:
        begun = [converting.begin(raw) for raw in documents]
        assert converting.version == converter_version()
        return [text.result() for text in begun]

    assert [read.text for read in converted(work)] == ["word 0", "word 1", "word 2"]


@pytest.mark.parametrize(
    ("raw", "problem", "fix"),
    [
        (
            b"%PDF-1.4 broken",
            "is a broken PDF (PdfStreamError)",
            "save it again from a program that opens it, or leave it out with a pattern",
        ),
        (b"\x89PNG\r\n\x1a\n\0", "is a PNG image, which is not read", "convert it to text, PDF"),
    ],
)
def test_what_cannot_be_converted_has_one_advice(raw: bytes, problem: str, fix: str) -> None:
    """The problem comes first, and one way out of it."""
    with pytest.raises(UnusableError) as refused:
        converted(lambda converting: converting.begin(raw).result())

    assert str(refused.value) == problem
    assert refused.value.fix.startswith(fix)


def test_a_missing_extra_is_told_from_a_broken_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that converts says which command installs it."""

    async def lacking(_converters: object, _kind: object, _raw: object) -> ReadText:
        raise NoTextError(f"is DOCX, which agents read after: {program.INSTALL}")

    monkeypatch.setattr("docllm.agent.documents.for_load.Converters.text", lacking)

    with pytest.raises(MissingExtraError, match="is DOCX, which needs an extra") as refused:
        converted(lambda converting: converting.begin(made_docx("word")).result())

    assert refused.value.fix == program.INSTALL == conversion.INSTALL


def test_nobody_waits_for_a_conversion_that_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the loop ends, as at Ctrl-C, a thread that waits goes on."""
    waiting = []

    async def never(_converters: object, _kind: object, _raw: object) -> ReadText:
        await asyncio.Event().wait()
        raise AssertionError

    async def main() -> None:
        converting = LoadConversion(asyncio.get_running_loop())
        waiting.append(converting.begin(made_docx("word")))
        await asyncio.sleep(0)
        await converting.close()

    monkeypatch.setattr("docllm.agent.documents.for_load.Converters.text", never)
    asyncio.run(main())

    with pytest.raises(CancelledError):
        waiting[0].result(timeout=5)
