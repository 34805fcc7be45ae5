"""Spans as values, and the port that takes them."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from docllm.schemas.codes import Code
from docllm.schemas.task.record.trace import SpanId

log = logging.getLogger(__name__)

TEXT_CHARS = 191  # the longest text of an attribute
_REPLACEMENT = "\ufffd"

Attribute = str | int | float | bool
_TOLD: set[type[Exception]] = set()


class SpanKind(Enum):
    """What a span is to its trace."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Span:
    """One ended step of a trace.

    Times are UTC, in seconds. `error` is the class of an error, empty for none. `parent` is a span
    of the same trace.
    """

    id: SpanId
    name: str
    kind: SpanKind
    start_s: float
    end_s: float
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    links: tuple[SpanId, ...] = ()
    parent: bytes | None = None
    error: str = ""


class Spans(Protocol):
    """Takes spans. Nobody waits for it, and it raises nothing."""

    def emit(self, span: Span) -> None:
        """Take a span; it is dropped, and counted, if too many wait."""
        ...

    @property
    def dropped(self) -> int:
        """How many spans were dropped."""
        ...

    def close(self) -> None:
        """Send what waits, within a few seconds; drop the rest."""
        ...


def inert(text: str, limit: int = TEXT_CHARS) -> str:
    """Return text from outside as an attribute: printable, on one line, and bounded."""
    cut = text[:limit]
    if cut.isprintable():
        return cut
    return "".join(letter if letter.isprintable() else _REPLACEMENT for letter in cut)


@contextmanager
def never_raising() -> Iterator[None]:
    """Catch errors of tracing, so that they never affect the traced work.

    That work may be a claim or a paid answer. Each kind of error is logged once, since it may come
    with every task.
    """
    try:
        yield
    except Exception as error:
        if type(error) not in _TOLD:
            _TOLD.add(type(error))
            log.exception(
                "something is not traced; tasks go on", extra={"code": Code.INTERNAL_ERROR}
            )
