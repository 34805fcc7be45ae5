"""Converts documents that are UTF-8 text.

Tested by tests/unit/agent/documents/test_reader.py.
"""

from functools import partial

from agent.documents import work
from agent.documents.errors import refused
from schemas.runtime.executors import Executor
from schemas.task.document_text import DocumentText, NoTextError


class PlainText:
    """A conversion that takes UTF-8 text and refuses all else."""

    def __init__(self, *, executor: Executor) -> None:
        self._executor = executor

    async def text(self, raw: bytes, uri: str) -> str:
        """Return the document's text. Raises DocumentError."""
        try:
            decode = partial(DocumentText().read, raw, final=True)
            return await work.run(self._executor, decode, size=len(raw))
        except NoTextError as error:
            raise refused(f"{uri} {error}") from None
