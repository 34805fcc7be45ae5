"""Writes objects once: none is overwritten; an existing one with equal bytes is accepted."""

import re
from typing import Protocol

from docllm.schemas.objects.errors import ObjectError, ObjectFault

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_CHARS = 80


class WriteOnceStore(Protocol):
    """Where objects are written. Failures are ObjectErrors."""

    async def put_new(self, uri: str, content: bytes) -> None:
        """Write an object that does not exist yet, whole."""
        ...

    async def get(self, uri: str, *, limit: int) -> bytes:
        """Return an object of at most `limit` bytes."""
        ...


class OutputStore(WriteOnceStore, Protocol):
    """Where results are written, and copied to the objects that their lines name."""

    async def put(self, uri: str, content: bytes) -> None:
        """Write an object, whole or not at all, whatever has its name."""
        ...


async def put_once(store: WriteOnceStore, uri: str, content: bytes) -> bool:
    """Write an object; return False if one with other content has its name. Raises ObjectError."""
    try:
        await store.put_new(uri, content)
    except ObjectError as error:
        if error.fault is not ObjectFault.EXISTS:
            raise
        return await _is_same(store, uri, content)
    return True


async def _is_same(store: WriteOnceStore, uri: str, content: bytes) -> bool:
    try:
        return await store.get(uri, limit=len(content)) == content
    except ObjectError as error:
        if error.fault is not ObjectFault.TOO_LARGE:
            raise
        return False


def safe_name(text: str) -> str:
    """Return the part of a text that is safe in paths and keys; it may be empty."""
    return _UNSAFE.sub("_", text)[:_NAME_CHARS].lstrip(".")
