"""The converting processes of an agent: started on demand and reused.

A process may die because of an earlier document, which left memory or broken state behind. So the
document is converted once more in a new process, unless its process was new or the document itself
took too long.
"""

import asyncio
import logging

from docllm.agent.documents.conversion.process import (
    ConversionDiedError,
    ConversionLimits,
    ConvertingProcess,
)
from docllm.schemas.documents.kind import Kind
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.text.document_text import ReadText

log = logging.getLogger(__name__)

MAX_DOCUMENTS = 500  # after so many, a process is replaced, because its libraries leak memory


class Converters:
    """Converts up to `max_processes` documents at once, each in a process; others wait.

    Processes are started on `thread`, with which the kernel ends them.
    """

    def __init__(
        self,
        *,
        thread: Executor,
        max_processes: int,
        limits: ConversionLimits | None = None,
    ) -> None:
        self._thread = thread
        self._limits = limits or ConversionLimits()
        self._free = asyncio.Semaphore(max_processes)
        self._idle: list[ConvertingProcess] = []

    async def text(self, kind: Kind, raw: bytes) -> ReadText:
        """Return the text of a document. Raises NoTextError and ConversionDiedError."""
        async with self._free:
            if self._idle:
                process = self._idle.pop()
                try:
                    return await self._convert(process, kind, raw)
                except ConversionDiedError as error:
                    if error.own:
                        raise
                    log.warning(
                        "a document %s; earlier ones were converted by the same process, "
                        "so it is converted again by a new one",
                        error,
                    )
            process = await ConvertingProcess.start(thread=self._thread, limits=self._limits)
            return await self._convert(process, kind, raw)

    async def close(self) -> None:
        """End the processes that convert nothing."""
        while self._idle:
            await self._idle.pop().close()

    async def _convert(self, process: ConvertingProcess, kind: Kind, raw: bytes) -> ReadText:
        try:
            return await process.convert(kind, raw)
        finally:
            if process.usable and process.documents < MAX_DOCUMENTS:
                self._idle.append(process)
            else:
                await process.close()
