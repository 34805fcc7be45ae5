"""Objects in a real S3 server: reads, listings, writes, and what each failure means."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, islice

import pytest

from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.objects.store import ObjectEntry, ObjectStores, same_etag
from tests.servers import ObjectStore

LIMIT = 1 << 20
_SECRET = "s3cret-of-tests"  # noqa: S105 - the tests look for it
_numbers = count()


@pytest.fixture
def bucket(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a new bucket of the server that the environment names."""
    for name, value in object_store.environ.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{next(_numbers)}"
    object_store.make_bucket(name)
    return name


def listed(prefix: str) -> list[ObjectEntry]:
    return list(ObjectStores().entries(prefix))


async def fault_of(uri: str, **options: str) -> ObjectError:
    with pytest.raises(ObjectError) as caught:
        await ObjectStores().get(uri, limit=LIMIT, **options)
    assert str(caught.value).startswith(uri)
    assert _SECRET not in str(caught.value)
    return caught.value


async def test_what_is_listed_can_be_read(object_store: ObjectStore, bucket: str) -> None:
    """Keys of any letters keep their bytes; sizes and etags of both answers agree."""
    keys = ["a b.txt", "a/b/c.txt", "q?x#y&z=1.txt", "x%20y.txt", "ü/ñ.txt", "z+!~'(),;@.txt"]
    for key in keys:
        object_store.put(bucket, f"in/{key}", key.encode() * 3)
    object_store.put(bucket, "input/other", b"below another prefix")

    entries = await asyncio.to_thread(listed, f"s3://{bucket}/in/")

    assert [entry.name for entry in entries] == sorted(keys, key=str.encode)
    stores = ObjectStores()
    for entry in entries:
        found = await stores.get(entry.uri, limit=LIMIT, etag=entry.etag)
        assert found.raw == entry.name.encode() * 3
        assert len(found.raw) == entry.size
        assert same_etag(found.etag, entry.etag)


async def test_a_prefix_is_whole_segments(object_store: ObjectStore, bucket: str) -> None:
    """A prefix with and without its slash is the same folder; no prefix is the whole bucket."""
    for key in ("a/1", "ab/2", "3"):
        object_store.put(bucket, key, b"x")

    for prefix, names in (("a/", ["1"]), ("a", ["1"]), ("", ["3", "a/1", "ab/2"]), ("b/", [])):
        entries = await asyncio.to_thread(listed, f"s3://{bucket}/{prefix}")
        assert [entry.name for entry in entries] == names


async def test_a_mark_of_a_folder_is_no_object(object_store: ObjectStore, bucket: str) -> None:
    """Consoles write an empty object for each folder; an empty object of its own is one."""
    for key, raw in (("f/", b""), ("f/a/", b""), ("f/a/1", b"x"), ("f/b", b""), ("f/c", b"x")):
        object_store.put(bucket, key, raw)

    entries = await asyncio.to_thread(listed, f"s3://{bucket}/f/")

    assert [(entry.name, entry.size) for entry in entries] == [("a/1", 1), ("b", 0), ("c", 1)]


async def test_an_object_is_written_once(bucket: str) -> None:
    """A second writer gets an error, even with the same bytes, and changes nothing."""
    uri, stores = f"s3://{bucket}/out/a b.json", ObjectStores()
    uri = uri.replace(" ", "%20")

    etag = await stores.put_new(uri, b"first")
    with pytest.raises(ObjectError) as caught:
        await stores.put_new(uri, b"second")

    assert (caught.value.fault, str(caught.value)[: len(uri)]) == (ObjectFault.EXISTS, uri)
    assert (await stores.get(uri, limit=LIMIT, etag=etag)).raw == b"first"


async def test_an_object_is_replaced_on_request(bucket: str) -> None:
    """Whatever it was; a name is free for it too."""
    uri, stores = f"s3://{bucket}/out/own", ObjectStores()

    for content in (b"first", b"second"):
        await stores.put(uri, content)
        assert (await stores.get(uri, limit=LIMIT)).raw == content


async def test_an_object_that_changed_is_told_apart(object_store: ObjectStore, bucket: str) -> None:
    """The etag of the listing decides, with or without its quotes."""
    object_store.put(bucket, "a", b"old")
    (entry,) = await asyncio.to_thread(listed, f"s3://{bucket}/")
    assert entry.etag is not None
    bare = entry.etag.strip('"')
    assert (await ObjectStores().get(entry.uri, limit=LIMIT, etag=bare)).raw == b"old"

    object_store.put(bucket, "a", b"new")

    assert (await fault_of(entry.uri, etag=entry.etag)).fault is ObjectFault.CHANGED


async def test_what_is_not_there_is_told_apart(object_store: ObjectStore, bucket: str) -> None:
    """An object that is gone, a bucket that never was, and a name that no object can have."""
    assert (await fault_of(f"s3://{bucket}/none")).fault is ObjectFault.MISSING
    assert (await fault_of("s3://no-such-bucket/a")).fault is ObjectFault.NO_BUCKET
    assert (await fault_of(f"s3://{bucket}/a//b")).fault is ObjectFault.WRONG_NAME
    with pytest.raises(ObjectError) as caught:
        await asyncio.to_thread(listed, "s3://no-such-bucket/")
    assert caught.value.fault is ObjectFault.NO_BUCKET
    assert "NoSuchBucket" in str(caught.value)


async def test_a_key_that_no_address_has_is_named(object_store: ObjectStore, bucket: str) -> None:
    """The client cannot list past it, so nothing is left out silently."""
    object_store.put(bucket, "in/a//b", b"x")
    object_store.put(bucket, "other/a", b"x")

    with pytest.raises(ObjectError, match="empty part") as caught:
        await asyncio.to_thread(listed, f"s3://{bucket}/in/")
    assert caught.value.fault is ObjectFault.WRONG_NAME
    assert len(await asyncio.to_thread(listed, f"s3://{bucket}/other/")) == 1


async def test_a_wrong_uri_shows_neither_user_nor_query() -> None:
    """A signed address must not come into errors that other people read."""
    with pytest.raises(ObjectError) as caught:
        await ObjectStores().get(f"s3://me:{_SECRET}@b/a?sig={_SECRET}", limit=LIMIT)
    assert str(caught.value).startswith("s3://b/a names no object")
    assert _SECRET not in str(caught.value)


async def test_no_more_than_the_limit_is_read(object_store: ObjectStore, bucket: str) -> None:
    """A large object is refused by its size, before its bytes come."""
    object_store.put(bucket, "large", bytes(LIMIT + 1))

    error = await fault_of(f"s3://{bucket}/large")

    assert error.fault is ObjectFault.TOO_LARGE
    assert str(LIMIT + 1) in str(error)


async def test_an_address_without_tls_needs_a_word(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the variable."""
    monkeypatch.delenv("AWS_ALLOW_HTTP")

    assert "AWS_ALLOW_HTTP" in str(await fault_of(f"s3://{bucket}/a"))


class _Refusing(BaseHTTPRequestHandler):
    """Answers each request with the status that its path names."""

    def do_GET(self) -> None:
        self.send_response(int(self.path.split("?")[0].rpartition("/")[2] or 503))
        body = f"<Error><Code>Code{_SECRET[:2]}</Code><Message>{_SECRET}</Message></Error>".encode()
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """Run a server in a thread; yield its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def refusing(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with serving(_Refusing) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://me:{_SECRET}@127.0.0.1:{port}")
        yield


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (403, ObjectFault.DENIED),
        (401, ObjectFault.DENIED),
        (404, ObjectFault.MISSING),
        (503, ObjectFault.OUTAGE),
    ],
)
@pytest.mark.usefixtures("refusing")
async def test_a_refusal_is_told_apart_and_shows_no_secret(status: int, fault: ObjectFault) -> None:
    """The text has the status and the store's code, and neither its message nor its address."""
    error = await fault_of(f"s3://bucket/{status}")

    assert error.fault is fault
    assert str(error).endswith(f"(status {status}, Codes3)")


class _OfShortKeys(_Refusing):
    """Refuses each object as S3 does if its key is too long."""

    def do_PUT(self) -> None:
        body = b"<Error><Code>KeyTooLongError</Code><Message>Your key is too long</Message></Error>"
        self.send_response(400)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.mark.usefixtures("bucket")
async def test_a_key_that_no_object_can_have_is_no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its answer would be written again for ever."""
    with serving(_OfShortKeys) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        with pytest.raises(ObjectError, match="KeyTooLong") as caught:
            await ObjectStores().put_new(f"s3://bucket/{'k' * 1100}", b"{}")

    assert caught.value.fault is ObjectFault.WRONG_NAME


@pytest.mark.usefixtures("refusing")
async def test_another_region_is_told() -> None:
    """S3 sends such requests elsewhere; a person must name the bucket's region."""
    error = await fault_of("s3://bucket/301")

    assert error.fault is ObjectFault.DENIED
    assert "AWS_REGION" in str(error)


async def test_a_store_that_is_down_is_an_outage(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next try may go well, so nothing is said of the object."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://me:{_SECRET}@127.0.0.1:1")

    error = await fault_of(f"s3://{bucket}/a")

    assert error.fault is ObjectFault.OUTAGE
    assert "127.0.0.1" not in str(error)


class _Endless(BaseHTTPRequestHandler):
    """Answers each listing with a page of 1000 objects, and that there are more."""

    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        names = (f"{self.asked:06}/{number:04}" for number in range(1000))
        objects = "".join(
            f"<Contents><Key>{name}</Key><Size>1</Size><ETag>&quot;e&quot;</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for name in names
        )
        body = (
            "<ListBucketResult><IsTruncated>true</IsTruncated>"
            f"<NextContinuationToken>{self.asked}</NextContinuationToken>{objects}"
            "</ListBucketResult>"
        ).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.mark.usefixtures("bucket")
def test_a_listing_is_asked_for_as_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket of any size needs the memory of a few pages."""
    with serving(_Endless) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        entries = ObjectStores().entries("s3://bucket/")
        names = [entry.name for entry in islice(entries, 20_000)]

    assert names[::1000] == [f"{page:06}/0000" for page in range(1, 21)]
    assert 20 <= _Endless.asked <= 25


@pytest.mark.parametrize("scheme", ["gs", "az"])
async def test_a_store_that_the_environment_does_not_name_is_one_error(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An account that is not set is a fault of the set-up, not of the object."""
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", f'{{"private_key": "{_SECRET}"}}')
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/none")
    with pytest.raises(ObjectError) as caught:
        await ObjectStores().get(f"{scheme}://bucket/a", limit=LIMIT)
    assert caught.value.fault is ObjectFault.DENIED
    assert _SECRET not in str(caught.value)
