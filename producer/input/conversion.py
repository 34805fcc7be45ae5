"""What a load asks of the converters of documents, which are an agent's.

`docllm.agent.documents.for_load` has them; this module and its package know none of their code.
"""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from typing import Protocol

from docllm.producer.input.document_source import UnusableError
from docllm.schemas.documents.kind import Kind
from docllm.schemas.text.document_text import ReadText

INSTALL = "pip install '.[documents]' in the clone of docllm"
MAX_SOURCE_BYTES = 16 << 20  # of a document that is converted at load
MAX_TEXT_BYTES = 2 << 20  # of its text
_AT_FIRST = 4  # documents of a kind that are converted for an estimate, before they become rare
_SAMPLE_S = 10.0
# Their text has about as many bytes as they have.
_TEXTS = frozenset({Kind.TEXT, Kind.UNICODE, Kind.OTHER_TEXT})


class MissingExtraError(UnusableError):
    """The document is of a kind whose libraries are not installed."""


class Conversion(Protocol):
    """Converts documents in processes of their own. `version` is that of the converters."""

    @property
    def version(self) -> str:
        """The version of the converters: another one may make another text."""
        ...

    def begin(self, raw: bytes) -> Future[ReadText]:
        """Begin to convert a document; any thread may call it.

        The result raises UnusableError.
        """
        ...


OpenConversion = Callable[[], Conversion]


class TextSizes:
    """Estimates how many bytes of text documents have, from a sample of each kind.

    The first documents of a kind are converted, and then ever fewer: the 8th, the 16th, the 32nd.
    `missing` has the kinds that cannot be read here because an extra is not installed.
    """

    def __init__(self, opened: OpenConversion) -> None:
        self._opened = opened
        self._seen = Counter[Kind]()
        self._raw_bytes, self._text_bytes = Counter[Kind](), Counter[Kind]()
        self._given_up: set[Kind] = set()
        self.missing: set[Kind] = set()

    def of(self, kind: Kind, raw: bytes) -> int:
        """Return the bytes of a document's text, about."""
        if kind in _TEXTS:
            return len(raw)
        self._seen[kind] += 1
        seen = self._seen[kind]
        is_sample = seen <= _AT_FIRST or not seen & (seen - 1)
        if is_sample and len(raw) <= MAX_SOURCE_BYTES and kind not in self._given_up:
            self._convert(kind, raw)
        if not self._raw_bytes[kind]:
            return len(raw)
        return len(raw) * self._text_bytes[kind] // self._raw_bytes[kind]

    def _convert(self, kind: Kind, raw: bytes) -> None:
        converting = self._opened().begin(raw)
        try:
            text = converting.result(_SAMPLE_S).text
        except MissingExtraError:
            self.missing.add(kind)
            self._given_up.add(kind)
        except LateError:
            converting.cancel()
            self._given_up.add(kind)
        except UnusableError:
            pass  # its task will be dead, and costs nothing
        else:
            self._raw_bytes[kind] += len(raw)
            self._text_bytes[kind] += len(text.encode("utf-8", "replace"))
