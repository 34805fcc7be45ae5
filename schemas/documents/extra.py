"""The libraries of the extra `documents`, which are imported when a document needs one."""

from collections.abc import Iterator
from contextlib import contextmanager

from docllm.schemas.text.document_text import NoTextError

INSTALL = "pip install 'docllm[documents]'"


@contextmanager
def needed(what: str) -> Iterator[None]:
    """Turn a missing library into an error that says how to install it. Raises NoTextError."""
    try:
        yield
    except ImportError:
        raise NoTextError(f"is {what}, which agents read after: {INSTALL}") from None
