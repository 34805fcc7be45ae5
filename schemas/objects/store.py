"""Reads, lists and writes objects. Failures are ObjectErrors.

A store's client is made at its first use and kept, one for each bucket.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from docllm.schemas.errors import ConfigError
from docllm.schemas.objects.address import ObjectAddress, is_object_uri
from docllm.schemas.objects.errors import HTTP_VARIABLES, ObjectError, ObjectFault

_PAGE = 1000
_PART_BYTES = 1 << 20
_CONNECT_S, _REQUEST_S, _RETRY_S, _RETRIES = 5, 60, 20, 2
_TRUE = frozenset({"1", "on", "t", "true", "y", "yes"})
_ODD_KEY = (
    "cannot be listed: a key below it has an empty part (//) or a part that is . or .., which no "
    "object URI can express; rename that object, or name prefixes beside it"
)
_INSTALL = "needs the extra `objects`; run: pip install '.[objects]' in the clone of docllm"


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """An object of a listing; `name` is its key below the prefix."""

    uri: str
    name: str
    size: int
    etag: str | None


@dataclass(frozen=True, slots=True)
class ObjectContent:
    """The bytes of an object, and the version that they are of."""

    raw: bytes
    etag: str | None


class ObjectStores:
    """The object stores that this environment can reach."""

    def __init__(self) -> None:
        self._stores: dict[tuple[str, str], Any] = {}

    async def get(self, uri: str, *, limit: int, etag: str | None = None) -> ObjectContent:
        """Return an object of at most `limit` bytes.

        Raises ObjectError, of the fault CHANGED if it is no longer the version `etag`.
        """
        address = _address(uri)
        store = self._store(address)
        with _failures_of(uri):
            answer = await store.get_async(address.key)
            meta = answer.meta
            _require(uri, meta["size"], limit)
            if etag is not None and not same_etag(meta["e_tag"], etag):
                raise ObjectError(
                    ObjectFault.CHANGED,
                    f"{uri} has changed since it was loaded: its etag is another one",
                )
            raw = bytearray()
            async for part in answer.stream(min_chunk_size=_PART_BYTES):
                raw += part
                _require(uri, len(raw), limit)
        return ObjectContent(bytes(raw), meta["e_tag"])

    async def put_new(self, uri: str, raw: bytes) -> str | None:
        """Write an object that does not exist yet, whole or not at all; return its etag.

        Raises ObjectError, of the fault EXISTS if there is one, whatever its content.
        """
        address = _address(uri)
        store = self._store(address)
        with _failures_of(uri):
            put = await store.put_async(address.key, raw, mode="create", use_multipart=False)
        etag = put["e_tag"]
        return None if etag is None else str(etag)

    async def put(self, uri: str, raw: bytes) -> None:
        """Write an object, whole or not at all, whatever has its name. Raises ObjectError."""
        address = _address(uri)
        store = self._store(address)
        with _failures_of(uri):
            await store.put_async(address.key, raw, mode="overwrite", use_multipart=False)

    def head(self, uri: str) -> ObjectEntry:
        """Return what a store says of an object, without its bytes.

        It blocks, so it belongs into a thread. Raises ObjectError.
        """
        address = _address(uri)
        store = self._store(address)
        with _failures_of(uri):
            meta = store.head(address.key)
        return _entry(address, meta, 0)

    def entries(self, prefix: str) -> Iterator[ObjectEntry]:
        """Yield the objects below a prefix in the store's order; a page of them is in memory.

        It blocks, so it belongs into a thread. Raises ObjectError.
        """
        address = _address(prefix)
        folder = address.key.rstrip("/")
        store = self._store(address)
        skipped = len(folder) + 1 if folder else 0
        held: ObjectEntry | None = None
        with _failures_of(prefix, _ODD_KEY):
            for page in store.list(prefix=folder or None, chunk_size=_PAGE):
                for meta in page:
                    entry = _entry(address, meta, skipped)
                    if held is not None and not entry.name.startswith(f"{held.name}/"):
                        yield held
                    held = None
                    if entry.size:
                        yield entry
                    elif entry.name:
                        held = entry  # some programs mark a folder by an empty object
        if held is not None:
            yield held

    def _store(self, address: ObjectAddress) -> Any:
        key = address.scheme, address.bucket
        if key not in self._stores:
            self._stores[key] = _opened(address)
        return self._stores[key]


def require_library(prefixes: Iterable[str]) -> None:
    """Refuse settings that allow objects where the library is missing. Raises ConfigError."""
    prefix = next((name for name in prefixes if is_object_uri(name)), None)
    if prefix is not None and find_spec("obstore") is None:
        raise ConfigError(f"documents.allow: {prefix} {_INSTALL}")


def same_etag(one: str | None, other: str | None) -> bool:
    """Return whether two etags name one version; listings and answers quote them differently."""
    return one is not None and other is not None and _bare(one) == _bare(other)


def _bare(etag: str) -> str:
    return etag.removeprefix("W/").strip('"')


def _entry(address: ObjectAddress, meta: Any, skipped: int) -> ObjectEntry:
    key = str(meta["path"])
    uri = ObjectAddress(address.scheme, address.bucket, key).uri
    etag = meta["e_tag"]
    return ObjectEntry(uri, key[skipped:], int(meta["size"]), None if etag is None else str(etag))


def _address(uri: str) -> ObjectAddress:
    try:
        return ObjectAddress.of(uri)
    except ValueError as error:
        raise ObjectError(
            ObjectFault.WRONG_NAME, f"{_shown(uri)} names no object: {error}"
        ) from None


def _shown(uri: str) -> str:
    """Return a wrong URI without its user and its query, which may hold secrets."""
    scheme, colon, rest = uri.partition("?")[0].partition("://")
    return f"{scheme}{colon}{rest.rpartition('@')[2]}"


@contextmanager
def _failures_of(uri: str, wrong_name: str = "") -> Iterator[None]:
    """Turn failures of the library into ObjectErrors; `wrong_name` says what a wrong name means."""
    try:
        yield
    except ObjectError:
        raise
    except Exception as error:  # noqa: BLE001 - it raises built-in errors too
        failure = ObjectError.of(error, uri)
        if wrong_name and failure.fault is ObjectFault.WRONG_NAME:
            failure = ObjectError(failure.fault, f"{uri} {wrong_name}")
        raise failure from None


def _require(uri: str, size: int, limit: int) -> None:
    if size > limit:
        raise ObjectError(
            ObjectFault.TOO_LARGE, f"{uri} has {size} bytes; at most {limit} are read"
        )


def _opened(address: ObjectAddress) -> Any:
    """Return a client of the library for a bucket."""
    try:
        from obstore.store import AzureStore, GCSStore, S3Store  # noqa: PLC0415 - an extra
    except ImportError:
        raise ObjectError(ObjectFault.NOT_INSTALLED, f"{address.scheme}:// {_INSTALL}") from None
    makers: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
    variable = os.environ.get(HTTP_VARIABLES[address.scheme], "")
    try:
        return makers[address.scheme](
            address.bucket,
            client_options={
                "connect_timeout": timedelta(seconds=_CONNECT_S),
                "timeout": timedelta(seconds=_REQUEST_S),
                "allow_http": variable.strip().lower() in _TRUE,
            },
            retry_config={
                "max_retries": _RETRIES,
                "retry_timeout": timedelta(seconds=_RETRY_S),
            },
        )
    except Exception:  # noqa: BLE001 - its text may hold what the environment holds
        raise ObjectError(
            ObjectFault.DENIED,
            f"{address.scheme}://{address.bucket}/ cannot be opened: the environment's variables "
            "for this store are not complete or not valid",
        ) from None
