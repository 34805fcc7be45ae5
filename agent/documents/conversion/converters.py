"""The converting processes of an agent: started on demand and reused.

A process may die because of an earlier document, which left memory or broken state behind. So the
document is converted once more in a new process, unless its process was new or the document itself
took too long.
"""

import asyncio
import logging
import signal
from dataclasses import dataclass
from typing import Self

from docllm.agent.documents.conversion.protocol import (
    HEAD,
    KIND_BYTES,
    MAX_NAMES_BYTES,
    MAX_TEXT_BYTES,
    MessageKind,
    text_from_bytes,
)
from docllm.agent.process.linked_child import LinkedChild, name_of_end
from docllm.schemas.documents.kind import Kind
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.text.document_text import NoTextError, ReadText

_PROGRAM = "docllm.agent.documents.conversion.program"


log = logging.getLogger(__name__)
MAX_DOCUMENTS = 500  # after so many, a process is replaced, because its libraries leak memory


@dataclass(frozen=True, slots=True)
class ConversionLimits:
    """What the conversion of one document may use."""

    memory_mb: int = 512
    cpu_s: int = 30
    time_s: float = 300.0


class ConversionDiedError(Exception):
    """A process ended before its document was converted. The text follows the document's name.

    `lasting`: another attempt would fail in the same way. `own`: earlier documents of the process
    cannot be the cause.
    """

    def __init__(self, text: str, *, lasting: bool, own: bool = False) -> None:
        super().__init__(text)
        self.lasting = lasting
        self.own = own


class ConvertingProcess:
    """A process and the link to it; a document that is not converted leaves it unusable."""

    def __init__(self, child: LinkedChild, limits: ConversionLimits) -> None:
        self.child = child
        self._limits = limits
        self.documents = 0
        self.usable = False

    @classmethod
    async def start(cls, *, thread: Executor, limits: ConversionLimits) -> Self:
        """Start a process on `thread`, with which the kernel ends it.

        Raises ConversionDiedError.
        """
        try:
            child = await LinkedChild.start(
                _PROGRAM, limits.memory_mb, limits.cpu_s, thread=thread, confined=True
            )
        except OSError as error:
            raise ConversionDiedError(
                f"was not converted: no process could be started: {error.strerror}", lasting=False
            ) from error
        process = cls(child, limits)
        try:
            await child.wait_ready(process.ready())
        except (TimeoutError, asyncio.IncompleteReadError, OSError) as error:
            text = "was not converted: the process for it did not start"
            raise ConversionDiedError(text, lasting=False) from error
        return process

    async def ready(self) -> None:
        """Wait until the process takes documents."""
        await self.child.reader.readexactly(HEAD.size)
        self.usable = True

    async def convert(self, kind: Kind, raw: bytes) -> ReadText:
        """Return the text of a document. Raises NoTextError and ConversionDiedError."""
        self.documents += 1
        self.usable = False
        try:
            async with asyncio.timeout(self._limits.time_s) as limit:
                word, data = await self._exchange(kind, raw)
        except TimeoutError:
            if not limit.expired():
                raise
            text = f"was not converted within {self._limits.time_s:g} s"
            raise ConversionDiedError(text, lasting=False, own=True) from None
        except (asyncio.IncompleteReadError, OSError, ValueError):
            raise await self._death() from None
        if word is MessageKind.WORN:
            text = f"takes more than {self._limits.memory_mb} MiB of memory to convert"
            raise ConversionDiedError(text, lasting=True)
        self.usable = True
        if word is MessageKind.TEXT:
            return text_from_bytes(data)
        raise NoTextError(data.decode("utf-8", "replace"))

    async def close(self) -> None:
        """End the process and wait for its end."""
        self.usable = False
        await self.child.close()

    async def _exchange(self, kind: Kind, raw: bytes) -> tuple[MessageKind, bytes]:
        self.child.writer.write(HEAD.pack(KIND_BYTES[kind], len(raw)))
        self.child.writer.write(raw)
        del raw
        await self.child.writer.drain()
        byte, size = HEAD.unpack(await self.child.reader.readexactly(HEAD.size))
        if size > MAX_TEXT_BYTES + MAX_NAMES_BYTES:
            raise ValueError(size)
        return MessageKind(byte), await self.child.reader.readexactly(size)

    async def _death(self) -> ConversionDiedError:
        """Return why the process has closed its link."""
        code = await self.child.exit_code()
        if code is None:
            return ConversionDiedError(
                "broke the link to the process that converts it", lasting=True
            )
        if code == -signal.SIGXCPU:
            text = f"takes more than {self._limits.cpu_s} s of a processor to convert"
            return ConversionDiedError(text, lasting=True, own=True)
        text = f"crashes what converts it, or needs too much memory ({name_of_end(code)})"
        # The process never kills itself: a person did, or the kernel because memory ran out.
        return ConversionDiedError(text, lasting=code != -signal.SIGKILL)


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
