"""Converts documents by content: text is decoded here, other kinds in a child process."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from docllm.agent.documents.conversion.converters import ConversionDiedError, Converters
from docllm.agent.documents.conversion.kept_texts import KeptTexts
from docllm.agent.documents.errors import refused, unreadable
from docllm.schemas.documents.encoding import decoded_text
from docllm.schemas.documents.kind import Kind, kind_of, misnamed
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.text.document_text import NoTextError, ReadText
from docllm.schemas.text.untrusted import contained

T = TypeVar("T")
_FEW_BYTES = 64 << 10  # below this, hashing or decoding costs less than a thread switch

# The kinds that the agent decodes itself; a process converts all others.
DECODERS: dict[Kind, Callable[[bytes], str]] = {
    Kind.TEXT: partial(str, encoding="utf-8-sig"),
    Kind.UNICODE: lambda raw: decoded_text(raw).text,
}


@dataclass(slots=True, kw_only=True, eq=False)
class ByContent:
    """Converts by content, not by file name; `kept` is the cache of converted texts."""

    executor: Executor
    converters: Converters
    kept: KeptTexts | None = None

    async def text(self, raw: bytes, uri: str) -> ReadText:
        """Return the document's text. Raises DocumentError."""
        try:
            kind, text = await run_by_size(
                self.executor, partial(_kind_and_text, raw, uri), size=len(raw)
            )
            return await self._converted(kind, raw) if text is None else ReadText(text)
        except NoTextError as error:
            raise refused(f"{uri} {error}") from None
        except ConversionDiedError as error:
            raise (refused if error.lasting else unreadable)(f"{uri} {error}") from None

    async def _converted(self, kind: Kind, raw: bytes) -> ReadText:
        kept = self.kept
        if kept is None:
            return await self.converters.text(kind, raw)
        read = await self.executor(partial(kept.get, raw))
        if read is None:
            read = await self.converters.text(kind, raw)
            await self.executor(partial(kept.put, raw, read))
        return read


def _kind_and_text(raw: bytes, name: str) -> tuple[Kind, str | None]:
    """Return the document's kind, and its text if no child process is needed."""
    try:
        kind = kind_of(raw)
    except NoTextError as error:
        raise NoTextError(f"{error}; convert it to text, PDF or DOCX") from None
    if problem := misnamed(kind, name):
        raise NoTextError(f"{problem}; it may be a server's error page")
    decode = DECODERS.get(kind)
    return kind, None if decode is None else decode(raw)


async def run_by_size(executor: Executor, call: Callable[[], T], *, size: int) -> T:
    """Return the result of `call`, which works on `size` bytes; its errors are Exceptions.

    Little work is done at once, other work in the executor.
    """

    def work() -> T:
        with contained():
            return call()

    return work() if size <= _FEW_BYTES else await executor(work)
