"""Converts documents for `docllm load`, as agents do: in their processes, with their limits."""

import asyncio
import os
from concurrent.futures import Future

from docllm.agent.documents.conversion.by_content import ByContent
from docllm.agent.documents.conversion.converters import Converters
from docllm.agent.documents.conversion.kept_texts import converter_version
from docllm.agent.documents.conversion.program import INSTALL
from docllm.agent.handlers.documents import DocumentError
from docllm.producer.input.conversion import MissingExtraError
from docllm.producer.input.document_source import UnusableError
from docllm.schemas.runtime.executors import ThreadExecutor
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.text.document_text import ReadText

_MAX_PROCESSES = 4
_LEAVE_OUT = "convert it to text, PDF or DOCX, or leave it out with a pattern"


class LoadConversion:
    """Converts documents on an event loop, for threads that read them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = ThreadExecutor("documents"), ThreadExecutor("processes")
        reading, starting = self._threads
        self._converters = Converters(
            thread=starting, max_processes=min(os.cpu_count() or 1, _MAX_PROCESSES)
        )
        self._by_content = ByContent(executor=reading, converters=self._converters)

    @property
    def version(self) -> str:
        """The version of the converters."""
        return converter_version()

    def begin(self, raw: bytes) -> Future[ReadText]:
        """Begin to convert a document. Its result raises UnusableError."""
        return asyncio.run_coroutine_threadsafe(self._text(raw), self._loop)

    async def close(self) -> None:
        """End the processes."""
        await self._converters.close()
        for thread in self._threads:
            thread.close(wait=False)

    async def _text(self, raw: bytes) -> ReadText:
        try:
            return await self._by_content.text(raw, "")
        except DocumentError as error:
            problem, _, advice = str(error).strip().partition("; ")
            if INSTALL in problem:
                kind = problem.partition(",")[0]
                raise MissingExtraError(f"{kind}, which needs an extra", INSTALL) from None
            if error.failure.error_class is ErrorClass.DOCUMENT_UNREADABLE:
                raise UnusableError(problem, "load again") from None
            fix = f"{advice}, or leave it out with a pattern" if advice else _LEAVE_OUT
            raise UnusableError(problem, fix) from None
