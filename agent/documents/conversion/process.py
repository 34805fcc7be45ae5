"""One converting process, as its agent sees it."""

import asyncio
import os
import signal
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Self

from docllm.agent.documents.conversion.protocol import (
    HEAD,
    KIND_BYTES,
    MAX_NAMES_BYTES,
    MAX_TEXT_BYTES,
    MessageKind,
    text_from_bytes,
)
from docllm.agent.process import child_process
from docllm.schemas.documents.kind import Kind
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.text.document_text import NoTextError, ReadText

_PROGRAM = (*child_process.INTERPRETER, "docllm.agent.documents.conversion.program")
_START_S = 60.0
_EXIT_S = 5.0  # how long a process may run on after it has closed its link


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

    def __init__(
        self,
        *,
        popen: "subprocess.Popen[bytes]",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        limits: ConversionLimits,
    ) -> None:
        self._popen = popen
        self._reader = reader
        self._writer = writer
        self._limits = limits
        self.documents = 0
        self.usable = False

    @classmethod
    async def start(cls, *, thread: Executor, limits: ConversionLimits) -> Self:
        """Start a process on `thread`, with which the kernel ends it.

        Raises ConversionDiedError.
        """
        try:
            popen, ours = await thread(partial(_start, limits))
        except OSError as error:
            raise ConversionDiedError(
                f"was not converted: no process could be started: {error.strerror}", lasting=False
            ) from error
        reader, writer = await asyncio.open_connection(sock=ours)
        process = cls(popen=popen, reader=reader, writer=writer, limits=limits)
        try:
            async with asyncio.timeout(_START_S):
                await process.ready()
        except BaseException as error:
            await process.close()
            if isinstance(error, TimeoutError | asyncio.IncompleteReadError | OSError):
                text = "was not converted: the process for it did not start"
                raise ConversionDiedError(text, lasting=False) from error
            raise
        return process

    async def ready(self) -> None:
        """Wait until the process takes documents."""
        await self._reader.readexactly(HEAD.size)
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
        if self._popen.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, signal.SIGKILL)
        self._writer.close()
        await asyncio.to_thread(self._popen.wait)

    async def _exchange(self, kind: Kind, raw: bytes) -> tuple[MessageKind, bytes]:
        self._writer.write(HEAD.pack(KIND_BYTES[kind], len(raw)))
        self._writer.write(raw)
        del raw
        await self._writer.drain()
        byte, size = HEAD.unpack(await self._reader.readexactly(HEAD.size))
        if size > MAX_TEXT_BYTES + MAX_NAMES_BYTES:
            raise ValueError(size)
        return MessageKind(byte), await self._reader.readexactly(size)

    async def _death(self) -> ConversionDiedError:
        """Return why the process has closed its link."""
        try:
            code = await asyncio.to_thread(self._popen.wait, _EXIT_S)
        except subprocess.TimeoutExpired:
            return ConversionDiedError(
                "broke the link to the process that converts it", lasting=True
            )
        if code == -signal.SIGXCPU:
            text = f"takes more than {self._limits.cpu_s} s of a processor to convert"
            return ConversionDiedError(text, lasting=True, own=True)
        is_signal = -code in set(signal.Signals)
        name = signal.Signals(-code).name if is_signal else f"exit code {code}"
        text = f"crashes what converts it, or needs too much memory ({name})"
        # The process never kills itself: a person did, or the kernel because memory ran out.
        return ConversionDiedError(text, lasting=code != -signal.SIGKILL)


def _start(limits: ConversionLimits) -> tuple["subprocess.Popen[bytes]", socket.socket]:
    """Start a process; return it with the agent's end of its link."""
    ours, theirs = socket.socketpair()
    command = (*_PROGRAM, str(theirs.fileno()), str(limits.memory_mb), str(limits.cpu_s))
    try:
        popen = child_process.start(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # it would print what strangers wrote
            keep=(theirs.fileno(),),
            bare=True,
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return popen, ours
