"""Chooses the store of a result by the scheme of its URI. Failures are ObjectErrors."""

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from docllm.schemas.objects.address import is_object_uri
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.objects.store import ObjectStores
from docllm.schemas.outputs import files
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.task.allowed_uris import allowed


class _OutputStore(Protocol):
    """Where results of some schemes lie. All methods raise ObjectError."""

    async def put_new(self, uri: str, content: bytes) -> None:
        """Write what does not exist yet; the fault is EXISTS if it does."""

    async def get(self, uri: str, *, limit: int) -> bytes:
        """Return an object of at most `limit` bytes."""

    async def sizes(self, folder: str) -> dict[str, int]:
        """Return the names of the objects in a folder, with their sizes in bytes."""


class OutputStores:
    """Folders and object stores. A file is written below one of the folders `allow` only."""

    def __init__(
        self, *, executor: Executor, objects: ObjectStores, allow: Sequence[str] = ()
    ) -> None:
        self._executor = executor
        self._folders = _Folders(executor, allow=allow)
        self._buckets = _Buckets(executor, objects=objects)

    async def put_new(self, uri: str, content: bytes) -> None:
        """Write what does not exist yet. Raises ObjectError, with EXISTS if it does."""
        await self._store_of(uri).put_new(uri, content)

    async def get(self, uri: str, *, limit: int) -> bytes:
        """Return an object of at most `limit` bytes. Raises ObjectError."""
        return await self._store_of(uri).get(uri, limit=limit)

    async def sha256(self, uri: str, *, limit: int) -> str:
        """Return the digest of an object of at most `limit` bytes, in hex. Raises ObjectError."""
        content = await self.get(uri, limit=limit)
        return await self._executor(lambda: hashlib.sha256(content).hexdigest())

    async def sizes(self, folder: str) -> dict[str, int]:
        """Return the names of the objects in a folder, with their sizes. Raises ObjectError."""
        return await self._store_of(folder).sizes(folder)

    def _store_of(self, uri: str) -> _OutputStore:
        return self._buckets if is_object_uri(uri) else self._folders


class _Folders:
    """Folders of this machine, by `file://`."""

    def __init__(self, executor: Executor, *, allow: Sequence[str]) -> None:
        self._executor = executor
        self._allow = tuple(allow)

    async def put_new(self, uri: str, content: bytes) -> None:
        roots = (prefix for prefix in self._allow if allowed(uri, [prefix]))
        root = next(roots, None)
        if root is None:
            raise ObjectError(ObjectFault.WRONG_NAME, f"{uri} is not below an allowed folder")
        await self._executor(partial(files.put_new, uri, content, root=root))

    async def get(self, uri: str, *, limit: int) -> bytes:
        return await self._executor(partial(files.get, uri, limit=limit))

    async def sizes(self, folder: str) -> dict[str, int]:
        return await self._executor(partial(files.sizes, folder))


class _Buckets:
    """Buckets of object stores, by the schemes of `ObjectStores`."""

    def __init__(self, executor: Executor, *, objects: ObjectStores) -> None:
        self._executor = executor
        self._objects = objects

    async def put_new(self, uri: str, content: bytes) -> None:
        await self._objects.put_new(uri, content)

    async def get(self, uri: str, *, limit: int) -> bytes:
        return (await self._objects.get(uri, limit=limit)).raw

    async def sizes(self, folder: str) -> dict[str, int]:
        def sizes() -> dict[str, int]:
            return {entry.name: entry.size for entry in self._objects.entries(folder)}

        return await self._executor(sizes)
