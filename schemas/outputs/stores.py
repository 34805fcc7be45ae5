"""Keeps results by the scheme of their URI. Failures are ObjectErrors."""

import hashlib
from collections.abc import Sequence
from functools import partial

from docllm.schemas.objects.address import is_object_uri
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.objects.store import ObjectStores
from docllm.schemas.outputs import files
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.task.allowed_uris import allowed


class OutputStores:
    """Folders of this machine, by `file://`, and object stores, by the schemes of `ObjectStores`.

    A file is written below one of the folders `allow` only.
    """

    def __init__(
        self, *, executor: Executor, objects: ObjectStores, allow: Sequence[str] = ()
    ) -> None:
        self._executor = executor
        self._objects = objects
        self._allow = tuple(allow)

    async def put_new(self, uri: str, content: bytes) -> None:
        """Write what does not exist yet. Raises ObjectError, with EXISTS if it does."""
        if is_object_uri(uri):
            await self._objects.put_new(uri, content)
            return
        await self._executor(partial(files.put_new, uri, content, root=self._root(uri)))

    async def put(self, uri: str, content: bytes) -> None:
        """Write an object below an allowed prefix, whatever has its name. Raises ObjectError."""
        root = self._root(uri)
        if is_object_uri(uri):
            await self._objects.put(uri, content)
            return
        await self._executor(partial(files.put, uri, content, root=root))

    def _root(self, uri: str) -> str:
        roots = (prefix for prefix in self._allow if allowed(uri, [prefix]))
        if (root := next(roots, None)) is None:
            raise ObjectError(ObjectFault.WRONG_NAME, f"{uri} is not below an allowed folder")
        return root

    async def get(self, uri: str, *, limit: int) -> bytes:
        """Return an object of at most `limit` bytes. Raises ObjectError."""
        if is_object_uri(uri):
            return (await self._objects.get(uri, limit=limit)).raw
        return await self._executor(partial(files.get, uri, limit=limit))

    async def sha256(self, uri: str, *, limit: int) -> str:
        """Return the digest of an object of at most `limit` bytes, in hex. Raises ObjectError."""
        content = await self.get(uri, limit=limit)
        return await self._executor(lambda: hashlib.sha256(content).hexdigest())

    async def sizes(self, folder: str) -> dict[str, int]:
        """Return the names of the objects in a folder, with their sizes. Raises ObjectError."""
        if not is_object_uri(folder):
            return await self._executor(partial(files.sizes, folder))
        entries = await self._executor(lambda: tuple(self._objects.entries(folder)))
        return {entry.name: entry.size for entry in entries}
