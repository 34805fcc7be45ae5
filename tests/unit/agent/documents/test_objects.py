"""Objects by URI: which are read, and what becomes of a task whose object is not as expected."""

import asyncio

import pytest

from docllm.agent.documents.objects import ObjectSource
from docllm.agent.handlers import DocumentError
from docllm.agent.handlers.documents import Expected
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.objects.store import ObjectContent, ObjectStores

URI = "s3://bucket/in/a.txt"
PREFIX = "s3://bucket/in/"


class Stored(ObjectStores):
    """Stores in which each object has these bytes, or this fault."""

    def __init__(self, found: bytes | ObjectFault) -> None:
        super().__init__()
        self.found = found
        self.asked: list[tuple[str, int, str | None]] = []

    async def get(self, uri: str, *, limit: int, etag: str | None = None) -> ObjectContent:
        self.asked.append((uri, limit, etag))
        if isinstance(self.found, ObjectFault):
            raise ObjectError(self.found, f"{uri} {self.found}")
        return ObjectContent(self.found, "e")


def fetched(stores: Stored, uri: str = URI, **expected: int | str) -> bytes:
    objects = ObjectSource(allow=[PREFIX], stores=stores, max_bytes=100)
    return asyncio.run(objects.fetch(uri, Expected(**expected)))  # type: ignore[arg-type]


def error_of(stores: Stored, uri: str = URI, **expected: int | str) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        fetched(stores, uri, **expected)
    assert uri in caught.value.failure.text
    return caught.value


def test_an_object_is_read_as_the_version_that_was_loaded() -> None:
    """The store compares the etag, before it sends more than the limit."""
    stores = Stored(b"text")

    assert fetched(stores, size=4, etag="e") == b"text"
    assert stores.asked == [(URI, 100, "e")]


@pytest.mark.parametrize(
    "uri", ["s3://bucket/other/a.txt", "s3://bucket/in/../a.txt", "gs://bucket/in/a.txt"]
)
def test_an_object_outside_the_prefixes_is_refused_unseen(
    uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No store is asked. The log names the prefixes, and the task's error does not."""
    stores = Stored(b"text")

    error = error_of(stores, uri)

    assert error.failure.error_class == "DOCUMENT_REFUSED"
    assert "DOCLLM_DOCUMENT_ALLOW" in error.failure.text
    assert (stores.asked, PREFIX in error.failure.text.replace(uri, "")) == ([], False)
    assert PREFIX in caplog.text


@pytest.mark.parametrize(
    ("fault", "error_class"),
    [
        (ObjectFault.CHANGED, "DOCUMENT_CHANGED"),
        (ObjectFault.NO_BUCKET, "DOCUMENT_REFUSED"),
        (ObjectFault.TOO_LARGE, "DOCUMENT_REFUSED"),
        (ObjectFault.WRONG_NAME, "DOCUMENT_REFUSED"),
        (ObjectFault.MISSING, "DOCUMENT_UNREADABLE"),
        (ObjectFault.DENIED, "DOCUMENT_UNREADABLE"),
        (ObjectFault.OUTAGE, "DOCUMENT_UNREADABLE"),
        (ObjectFault.NOT_INSTALLED, "DOCUMENT_UNREADABLE"),
    ],
)
def test_each_fault_has_its_class(fault: ObjectFault, error_class: str) -> None:
    """What may be mended is tried again; a task of another object is given up."""
    assert error_of(Stored(fault)).failure.error_class == error_class


def test_an_object_that_is_gone_since_it_was_loaded_has_changed() -> None:
    """The load saw it, so another attempt would not find it either."""
    error = error_of(Stored(ObjectFault.MISSING), etag="e")

    assert error.failure.error_class == "DOCUMENT_CHANGED"


def test_an_object_of_another_size_has_changed() -> None:
    """A line may name a size and no etag."""
    error = error_of(Stored(b"text"), size=5)

    assert error.failure.error_class == "DOCUMENT_CHANGED"
    assert "4 bytes, not 5" in error.failure.text


def test_a_query_is_not_shown() -> None:
    """A query may be the signature of an address, and other people read the error."""
    with pytest.raises(DocumentError) as caught:
        fetched(Stored(b"text"), f"{URI}?signature=s3cret")
    assert "s3cret" not in caught.value.failure.text


def test_some_objects_at_a_time_are_fetched() -> None:
    """The memory of objects in flight is bounded, whatever the number of tasks."""
    most, now = 0, 0

    class Slow(Stored):
        async def get(self, uri: str, *, limit: int, etag: str | None = None) -> ObjectContent:
            nonlocal most, now
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            now -= 1
            return ObjectContent(b"text", None)

    async def fetch_all() -> None:
        objects = ObjectSource(allow=[PREFIX], stores=Slow(b"text"))
        await asyncio.gather(*(objects.fetch(URI, Expected()) for _ in range(100)))

    asyncio.run(fetch_all())

    assert most == 16
