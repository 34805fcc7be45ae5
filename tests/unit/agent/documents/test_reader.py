"""Documents are read: their source by scheme, digest, text, shares of hosts and of memory."""

import asyncio
import hashlib
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from docllm.agent.documents.conversion.by_content import ByContent
from docllm.agent.documents.conversion.converters import Converters
from docllm.agent.documents.reader import BytesInFlight, Documents, HostShares
from docllm.agent.handlers import DocumentError
from docllm.agent.handlers.documents import Expected
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.text.document_text import ReadText
from tests.support.doubles import stand_in

ANY = Expected()
LARGE = b"x" * 100_000


class Stored:
    """A source with one document, or one error."""

    def __init__(self, content: bytes | BaseException) -> None:
        self.content = content
        self.asked: list[tuple[str, Expected]] = []

    async def fetch(self, uri: str, expected: Expected) -> bytes:
        self.asked.append((uri, expected))
        if isinstance(self.content, BaseException):
            raise self.content
        return self.content


def reader(source: Stored, scheme: str) -> Documents:
    inline = InlineExecutor()
    return Documents(
        sources={scheme: source},
        conversion=ByContent(
            executor=inline, converters=Converters(thread=inline, max_processes=1)
        ),
        executor=inline,
    )


def read(source: Stored, uri: str = "mem://a", **expected: Any) -> str:
    return asyncio.run(reader(source, "mem").read(uri, Expected(**expected))).text


def refused(source: Stored, uri: str = "mem://a", **expected: Any) -> tuple[str, str]:
    with pytest.raises(DocumentError) as error:
        read(source, uri, **expected)
    return error.value.failure.error_class, error.value.failure.text


def test_a_document_is_read_from_the_source_of_its_scheme() -> None:
    """The source gets the URI and what is known of the document; schemes have no case."""
    source = Stored(b"text")

    assert read(source, "MEM://a", size=4, etag="e") == "text"
    assert source.asked == [("MEM://a", Expected(size=4, etag="e"))]


def test_a_size_that_is_never_read_holds_back_no_other_document() -> None:
    """Such a document is refused before it takes any of the memory that all documents share."""
    source = Stored(b"text")

    assert refused(source, size=(32 << 20) + 1) == (
        "DOCUMENT_REFUSED",
        "the task's line says that mem://a has 33554433 bytes; at most 33554432 are read",
    )
    assert not source.asked


class Slow(Stored):
    """A source whose slow documents come when they are let go."""

    def __init__(self) -> None:
        super().__init__(b"text")
        self.go = asyncio.Event()

    async def fetch(self, uri: str, expected: Expected) -> bytes:
        if "slow" in uri:
            await self.go.wait()
        return await super().fetch(uri, expected)


def test_a_slow_web_server_leaves_room_for_other_documents() -> None:
    """However many of its documents are waited for, another server's comes."""

    async def main() -> None:
        source = Slow()
        documents = reader(source, "https")
        slow = [asyncio.create_task(documents.read(f"https://slow/{n}", ANY)) for n in range(20)]
        await asyncio.sleep(0)

        assert await asyncio.wait_for(documents.read("https://other/a", ANY), 30) == ("text", ())
        source.go.set()
        assert await asyncio.gather(*slow) == [ReadText("text")] * 20

    asyncio.run(main())


@pytest.mark.parametrize("uri", ["other://a", "mem", "", "/etc/hostname"])
def test_a_uri_without_a_source_is_refused(uri: str) -> None:
    """A URI that no source reads is refused with the schemes that may be read."""
    source = Stored(b"text")

    error_class, text = refused(source, uri)

    assert error_class == "DOCUMENT_REFUSED"
    assert "is not a URI of a document; write file:///, https://" in text
    assert source.asked == []


@pytest.mark.parametrize("content", [b"text", LARGE])
def test_a_document_with_another_digest_is_not_the_tasks(content: bytes) -> None:
    """A document of any size must have the digest that was loaded."""
    digest = hashlib.sha256(content).hexdigest()

    assert read(Stored(content), sha256=digest) == content.decode()
    assert refused(Stored(content + b"."), sha256=digest)[0] == "DOCUMENT_CHANGED"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b" \n", "white space"),
        (b"\x89PNG\r\n\0", "a PNG image"),
        (LARGE + b"\0", "zero byte"),
        (b"a\0", "zero byte"),
    ],
)
def test_a_document_without_text_is_refused(content: bytes, problem: str) -> None:
    """A document without text is refused by its URI and the reason."""
    error_class, text = refused(Stored(content))

    assert error_class == "DOCUMENT_REFUSED"
    assert text.startswith("mem://a ")
    assert problem in text


class _Panic(BaseException):
    """Stands for a panic of native code."""


@pytest.mark.parametrize("error", [ValueError("no"), _Panic("no")], ids=["error", "panic"])
def test_a_source_that_fails_is_one_tasks_failure(error: BaseException) -> None:
    """Any error of a source, even a panic of native code, fails this task alone."""
    error_class, text = refused(Stored(error))

    assert error_class == "DOCUMENT_UNREADABLE"
    assert "because its reader fails" in text


def test_a_cancellation_passes() -> None:
    """A cancelled attempt is no failure of its document."""
    with pytest.raises(asyncio.CancelledError):
        read(Stored(asyncio.CancelledError()))


@pytest.mark.parametrize(
    "uri", ["mem://user:secret@h/a", "mem://h/a?sig=secret", "x://secret@h/a?secret", "//secret@h"]
)
def test_errors_show_no_secret_of_a_uri(uri: str) -> None:
    """A dead letter, which others read, shows no password and no signature of a URI."""
    for content in (b"", b"\0", ValueError("no")):
        error_class, text = refused(Stored(content), uri)
        assert error_class.startswith("DOCUMENT_")
        assert "secret" not in text


def test_a_converted_document_holds_no_place_of_its_host() -> None:
    """While some documents of a host are converted, the next ones are fetched."""
    source, most = Stored(b"text"), 4

    together = asyncio.Barrier(most + 1)

    class Slow:
        async def text(self, raw: bytes, name: str) -> ReadText:
            del raw, name
            await together.wait()
            return ReadText("text")

    conversion = stand_in(ByContent, Slow())
    documents = Documents(
        sources={"https": source}, conversion=conversion, executor=InlineExecutor()
    )

    async def all_read() -> list[ReadText]:
        reads = (documents.read(f"https://a.test/{number}", ANY) for number in range(most + 1))
        return await asyncio.wait_for(asyncio.gather(*reads), 10)

    assert asyncio.run(all_read()) == [ReadText("text")] * (most + 1)


SLOW = "https://slow.example/a"


class Holding:
    """Holds a place, or bytes, until it is ended."""

    def __init__(self, hold: AbstractAsyncContextManager[None]) -> None:
        self.holds = False
        self._end = asyncio.Event()
        self.task = asyncio.create_task(self._run(hold))

    async def _run(self, hold: AbstractAsyncContextManager[None]) -> None:
        async with hold:
            self.holds = True
            await self._end.wait()
        self.holds = False

    async def end(self) -> None:
        self._end.set()
        await self.task
        await asyncio.sleep(0)


@pytest.mark.parametrize("same", [SLOW, "HTTPS://user@SLOW.example.:444/b?c"])
def test_a_host_has_its_share_and_others_go_on(same: str) -> None:
    """The third document waits until one of the host's two has come; another host's does not."""

    async def main() -> None:
        shares = HostShares(2)
        first, second, third, other = (
            Holding(shares.hold(uri)) for uri in (SLOW, same, SLOW, "https://other.example/a")
        )
        await asyncio.sleep(0)
        assert [one.holds for one in (first, second, third, other)] == [True, True, False, True]

        await first.end()
        assert third.holds
        for one in (second, third, other):
            await one.end()
        assert (shares._places, dict(shares._users)) == ({}, {})

    asyncio.run(main())


def test_a_cancelled_document_leaves_its_place() -> None:
    async def main() -> None:
        shares = HostShares(1)
        first, second, third = (Holding(shares.hold(SLOW)) for _ in range(3))
        await asyncio.sleep(0)
        for one in (second, first):
            one.task.cancel()
            await asyncio.wait([one.task])
        await asyncio.sleep(0)

        assert third.holds
        await third.end()
        assert not shares._places

    asyncio.run(main())


@pytest.mark.parametrize("uri", ["file:///a", "s3://bucket/a", "https://[::1/a", "", "https:///a"])
def test_other_documents_have_no_bound(uri: str) -> None:
    async def main() -> None:
        shares = HostShares(1)
        async with shares.hold(uri), shares.hold(uri):
            assert not shares._places

    asyncio.run(main())


def test_the_bytes_in_flight_are_bounded_in_the_order_of_asking() -> None:
    """A small one does not pass a large one that waits, and one above the bound takes it all."""

    async def main() -> None:
        flight = BytesInFlight(10)
        first, large, small = (Holding(flight.hold(size)) for size in (6, 100, 1))
        await asyncio.sleep(0)
        assert (first.holds, large.holds, small.holds) == (True, False, False)
        await first.end()
        assert (large.holds, small.holds) == (True, False)
        await large.end()
        assert small.holds
        await small.end()
        assert flight._free == 10

    asyncio.run(main())


def test_a_cancelled_one_blocks_nobody() -> None:
    """One that is cancelled while it waits, or as its turn comes, leaves its room to others."""

    async def main() -> None:
        flight = BytesInFlight(10)
        first, large, small = (Holding(flight.hold(size)) for size in (6, 10, 1))
        await asyncio.sleep(0)
        large.task.cancel()
        await asyncio.wait([large.task])
        await asyncio.sleep(0)
        assert small.holds
        late = Holding(flight.hold(10))
        await asyncio.sleep(0)
        await small.end()
        first._end.set()
        await asyncio.wait([first.task])
        late.task.cancel()  # its turn has come, and it has not run yet
        await asyncio.wait([late.task])
        await first.end()
        assert (flight._free, len(flight._waiting)) == (10, 0)

    asyncio.run(main())
