"""Reads results outside the ledger for the thread of an export."""

import asyncio
from collections.abc import Sequence

from docllm.schemas.objects.errors import ObjectError
from docllm.schemas.objects.output_stores import OutputStores
from docllm.schemas.objects.store import ObjectStores
from docllm.schemas.runtime.executors import ThreadExecutor
from docllm.schemas.task.result.output_pointer import OutputPointer

_AT_ONCE = 16


class OutputReader:
    """Reads objects, some at once, for the thread of an export. Made on the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadExecutor("outputs", threads=4)
        self._stores = OutputStores(executor=self._executor, objects=ObjectStores())
        self._free = asyncio.Semaphore(_AT_ONCE)

    def fetch(self, pointers: Sequence[OutputPointer]) -> Sequence[bytes | Exception]:
        """Return the content of each object, or the error in its place."""
        return asyncio.run_coroutine_threadsafe(self._all(pointers), self._loop).result()

    def close(self) -> None:
        """Close the threads."""
        self._executor.close()

    async def _all(self, pointers: Sequence[OutputPointer]) -> list[bytes | Exception]:
        return await asyncio.gather(*map(self._one, pointers))

    async def _one(self, pointer: OutputPointer) -> bytes | Exception:
        async with self._free:
            try:
                return await self._stores.get(pointer.uri, limit=pointer.size)
            except ObjectError as error:
                return error
