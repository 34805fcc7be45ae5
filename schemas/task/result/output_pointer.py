"""A result outside the ledger: the object's content and the pointer to it.

The content is a JSON object with `id`, `batch`, `result` and, for a provider's answer, the whole
`completion`. The last field has the stored result unchanged, so that exports from the object and
from the ledger are equal.
"""

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from docllm.schemas.task.result.answer import read_result, stored_json, strict_json
from docllm.schemas.task.result.codec import is_value, plain

_END = b"}\n"


class OutputAlteredError(Exception):
    """An object that is not the one that was written; the text says what differs."""


@dataclass(frozen=True, slots=True)
class OutputPointer:
    """Where a result lies, and how its object looked when it was written.

    `codec` is the encoding of the stored result, which begins at byte `start` of the object.
    `mended` is what was mended in the answer, so that the object is JSON.
    """

    uri: str
    size: int
    sha256: str
    codec: int
    start: int
    mended: tuple[str, ...] = ()

    @classmethod
    def of_stored(cls, stored: bytes) -> "OutputPointer":
        """Return the pointer that the ledger has stored."""
        fields = orjson.loads(stored)
        fields["mended"] = tuple(fields.get("mended", ()))
        return cls(**{name: fields[name] for name in cls.__slots__})

    def stored(self) -> bytes:
        """Return the pointer as the ledger stores it."""
        fields = asdict(self)
        if not self.mended:
            del fields["mended"]
        return orjson.dumps(fields)

    def result_in(self, content: bytes) -> bytes:
        """Return the stored result of the object. Raises OutputAlteredError."""
        if len(content) != self.size:
            raise OutputAlteredError(f"it has {len(content)} bytes, {self.size} were written")
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise OutputAlteredError("its SHA-256 is another one")
        return content[self.start : -len(_END)]


@dataclass(frozen=True, slots=True)
class Output:
    """The content of an object that has yet to be written."""

    content: bytes
    codec: int
    start: int
    mended: tuple[str, ...] = ()

    def pointer(self, uri: str) -> OutputPointer:
        """Return the pointer to this content at `uri`."""
        digest = hashlib.sha256(self.content).hexdigest()
        return OutputPointer(uri, len(self.content), digest, self.codec, self.start, self.mended)


def output_of(*, key: str, batch: str, codec: int, stored: bytes) -> Output:
    """Return the object of a task's result, which is stored as `codec` says.

    The codec alone decides whether an answer is JSON, so the task's line is not needed. A
    completion that had to be mended is written as it was mended, because the object is JSON.
    """
    body = stored_json(codec, stored)
    head: dict[str, Any] = {"id": key, "batch": batch}
    last = "result"
    mended: tuple[str, ...] = ()
    if not is_value(codec):
        head["result"], mended = read_result(b"", codec, stored)
        body, last = strict_json(body), "completion"
    if mended:
        head["mended"] = mended
    begin = b'%s,"%s":' % (orjson.dumps(head)[:-1], last.encode())
    return Output(begin + body + _END, plain(codec), len(begin), mended)
