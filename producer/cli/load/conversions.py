"""Opens the converters of an agent for a load that needs them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from docllm.producer.cli.options.strict_parser import Imported
from docllm.producer.input.conversion import Conversion
from docllm.producer.input.document_source import UnusableError

# Returns the line that a batch has under an id.
FindLine = Callable[[str], Coroutine[Any, Any, bytes | None]]
# Agents have the converters, and load nothing of theirs unless a document needs it.
_CONVERSION = Imported("docllm.agent.documents.for_load:LoadConversion")


class Conversions:
    """Opens converters at their first use, on any thread, and closes them at the end of a load."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._opened: Any = None
        self._is_closed = False

    def open(self) -> Conversion:
        """Return the converters."""
        self._require_open()
        if self._opened is None:
            self._opened = _CONVERSION(self._loop)
        opened: Conversion = self._opened
        return opened

    def stored_by(self, find: FindLine) -> Callable[[str], bytes | None]:
        """Return a call for other threads of `find`."""

        def stored(name: str) -> bytes | None:
            self._require_open()
            return asyncio.run_coroutine_threadsafe(find(name), self._loop).result()

        return stored

    async def close(self) -> None:
        """End the converting processes, if there are any, and whoever still waits for them."""
        self._is_closed = True
        if self._opened is not None:
            await self._opened.close()

    def _require_open(self) -> None:
        """Raise UnusableError after the end, since the event loop would answer no more."""
        if self._is_closed:
            raise UnusableError("is not read: the load has ended", "load again")
