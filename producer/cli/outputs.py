"""Reads results outside the ledger for `export`, and reports results that could not be read."""

import asyncio
from collections.abc import Sequence

from docllm.producer.screen.output import complain, note
from docllm.producer.text.printable import shown
from docllm.schemas.objects.errors import ObjectError
from docllm.schemas.objects.store import ObjectStores
from docllm.schemas.outputs.stores import OutputStores
from docllm.schemas.runtime.executors import ThreadExecutor
from docllm.schemas.task.result.output_pointer import OutputPointer
from docllm.schemas.text.wording import number_of

_AT_ONCE = 16
_SHOWN = 20


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


class LostOutputs:
    """The results that an export could not read."""

    def __init__(self) -> None:
        self._lost: list[str] = []

    def note(self, what: str) -> None:
        """Note a result that could not be read."""
        self._lost.append(what)

    def report(self) -> int:
        """Complain about them, and return the exit code of the export."""
        if not self._lost:
            return 0
        for what in self._lost[:_SHOWN]:
            note(shown(what))
        if len(self._lost) > _SHOWN:
            note(f"and {len(self._lost) - _SHOWN} more")
        complain(
            f"{number_of(len(self._lost), 'result')} could not be read; their lines have the error "
            "UNREADABLE, all others are whole. Export again when their outputs are there"
        )
        return 1
