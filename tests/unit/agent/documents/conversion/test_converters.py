"""Real processes convert documents; one that dies of a document costs only that document."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from docllm.agent.documents.conversion.converters import (
    ConversionDiedError,
    ConversionLimits,
    Converters,
)
from docllm.schemas.documents.kind import Kind
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.text.document_text import NoTextError
from tests.support.made_documents import made_docx, made_pdf

PAGE = b"<!doctype html><p>page"


def run(
    work: Callable[[Converters], Awaitable[None]], limits: ConversionLimits | None = None
) -> None:
    async def main() -> None:
        converters = Converters(thread=InlineExecutor(), max_processes=1, limits=limits)
        try:
            await work(converters)
        finally:
            await converters.close()

    asyncio.run(main())


def test_documents_of_every_kind_are_converted_by_one_process() -> None:
    """A process takes one document after another, and refused ones do not end it."""

    async def work(converters: Converters) -> None:
        assert (await converters.text(Kind.PDF, made_pdf(["in a PDF"]))).text == "in a PDF"
        (process,) = converters._idle
        assert (await converters.text(Kind.DOCX, made_docx("in a DOCX"))).text == "in a DOCX"
        with pytest.raises(NoTextError, match="a broken PDF"):
            await converters.text(Kind.PDF, b"%PDF-1.4")
        assert (await converters.text(Kind.HTML, PAGE)).text == "page"
        assert (await converters.text(Kind.OTHER_TEXT, "Straße".encode("cp1252"))).text == "Straße"
        assert (converters._idle, process.documents) == ([process], 5)

    run(work)


def test_a_process_gets_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a converting process holds no key."""
    monkeypatch.setenv("DOCLLM_LLM_API_KEY", "sk-secret")
    environment: list[bytes] = []

    async def work(converters: Converters) -> None:
        await converters.text(Kind.HTML, PAGE)
        environment.append(environment_of(converters._idle[0].child.popen.pid))

    run(work)
    assert b"PATH" in environment[0]
    assert b"sk-secret" not in environment[0]


def status_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/status").read_text().splitlines()


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def test_a_process_is_isolated() -> None:
    """It cannot get rights back, and its system calls are filtered."""
    status: list[str] = []

    async def work(converters: Converters) -> None:
        await converters.text(Kind.HTML, PAGE)
        status.extend(status_of(converters._idle[0].child.popen.pid))

    run(work)
    assert {"NoNewPrivs:\t1", "Seccomp:\t2"} <= set(status)


def test_a_document_whose_process_is_killed_is_converted_by_a_new_one() -> None:
    """Nobody can tell whose fault the end of a used process is, so the document gets another."""

    async def work(converters: Converters) -> None:
        await converters.text(Kind.HTML, PAGE)
        (process,) = converters._idle
        os.kill(process.child.popen.pid, signal.SIGKILL)
        assert (await converters.text(Kind.HTML, PAGE)).text == "page"
        assert converters._idle != [process]

    run(work)


def test_a_document_that_takes_too_much_of_the_processor_is_given_up() -> None:
    """A new process, too, is ended by the limit, and the next document is converted."""
    deep = b"<!doctype html>" + b"<div>" * 1_000_000

    async def work(converters: Converters) -> None:
        await converters.text(Kind.HTML, PAGE)
        with pytest.raises(ConversionDiedError, match="more than 1 s of a processor") as raised:
            await converters.text(Kind.HTML, deep)
        assert raised.value.lasting
        assert (await converters.text(Kind.HTML, PAGE)).text == "page"

    run(work, ConversionLimits(cpu_s=1))


def test_a_document_that_takes_too_much_memory_is_given_up() -> None:
    """An equation of a million signs in a small DOCX needs more than it may."""
    signs = "<m:r><m:t>x</m:t></m:r>" * 1_000_000
    large = made_docx(body=f'<m:oMath xmlns:m="m">{signs}</m:oMath>')

    async def work(converters: Converters) -> None:
        with pytest.raises(ConversionDiedError, match="more than 200 MiB of memory") as raised:
            await converters.text(Kind.DOCX, large)
        assert raised.value.lasting
        assert (await converters.text(Kind.HTML, PAGE)).text == "page"

    run(work, ConversionLimits(memory_mb=200))


def test_a_text_that_is_too_long_is_refused() -> None:
    """What a document unpacks to is bounded as a text file is."""

    async def work(converters: Converters) -> None:
        with pytest.raises(NoTextError, match="bytes of text; at most 33554432"):
            await converters.text(Kind.HTML, b"<!doctype html>" + b"x" * (33 << 20))

    run(work)


def test_a_cancelled_conversion_ends_its_process() -> None:
    """Nothing works on for a task that is gone, and the next document does not get its answer."""
    deep = b"<!doctype html>" + b"<div>" * 300_000

    async def work(converters: Converters) -> None:
        await converters.text(Kind.HTML, PAGE)
        (process,) = converters._idle
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(converters.text(Kind.HTML, deep), 0.2)
        assert process.child.popen.returncode == -signal.SIGKILL
        assert (await converters.text(Kind.HTML, PAGE)).text == "page"

    run(work)
