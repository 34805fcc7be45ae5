"""What was left out of a document goes with its text, from the cache too, to the result."""

import asyncio
from pathlib import Path

import pytest

from docllm.agent.documents.conversion.by_content import ByContent
from docllm.agent.documents.conversion.converters import Converters
from docllm.agent.documents.conversion.kept_texts import KeptTexts
from docllm.agent.documents.conversion.protocol import text_from_bytes, text_to_bytes
from docllm.agent.documents.reader import Documents
from docllm.agent.ports.outcome import Succeeded
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.task.result.notes import NoteKind
from docllm.schemas.text.document_text import ReadText
from tests.support.handlers import handlers_harness
from tests.support.made_documents import made_docx

RAW = made_docx("a", files={"word/embeddings/a.bin": b"\0"})
READ = ReadText("a", ("1 embedded file",))


@pytest.mark.parametrize("read", [READ, ReadText(""), ReadText("a\n\x1f b", ("ü", "x y"))])
def test_what_is_packed_is_unpacked(read: ReadText) -> None:
    """Both a process and the cache pack a text with its names."""
    assert text_from_bytes(text_to_bytes(read)) == read


def test_names_are_few_short_and_on_one_line() -> None:
    """An attachment's name is a stranger's, and a document may have a million of them."""
    names = ("a\nb\x1fc\x1b[31m", "x" * 1000, *map(str, range(1000)))

    omitted = text_from_bytes(text_to_bytes(ReadText("a", names))).omitted

    assert omitted[:3] == ("a b c [31m", "x" * 80, "0")
    assert (len(omitted), omitted[-1]) == (50, "and 953 more")


@pytest.mark.parametrize("data", [b"", b"no end", b"x" * 100_000 + b"\n", b"\xff\na", b"a\n\xff"])
def test_what_is_not_packed_is_refused(data: bytes) -> None:
    """A process that a document has taken over may say anything."""
    with pytest.raises(ValueError, match=r"."):
        text_from_bytes(data)


def test_a_kept_text_has_what_was_left_out(tmp_path: Path) -> None:
    """The second question about a document is answered from the same part of it."""

    async def read() -> list[ReadText]:
        inline = InlineExecutor()
        converters = Converters(thread=inline, max_processes=1)
        kept = KeptTexts(folder=tmp_path, most_bytes=10_000)
        conversion = ByContent(executor=inline, converters=converters, kept=kept)
        try:
            first = await conversion.text(RAW, "mem://a")
            assert kept.get(RAW) == READ
            return [first, await conversion.text(RAW, "mem://b")]
        finally:
            await converters.close()

    assert asyncio.run(read()) == [READ, READ]


def test_reading_the_document_notes_what_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handlers in threads and processes ask the same method."""

    async def read(_documents: Documents, _uri: str, _expected: object) -> ReadText:
        return READ

    monkeypatch.setattr(Documents, "read", read)

    outcome = handlers_harness().run(
        {"id": "a", "prompt": "{document}", "input": {"uri": "file:///a"}}
    )

    assert isinstance(outcome, Succeeded)
    assert outcome.notes == ((NoteKind.OMITTED, ("1 embedded file",)),)
