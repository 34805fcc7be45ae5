"""A reader of documents that are files of this machine, without threads."""

from collections.abc import Sequence
from pathlib import Path

from docllm.agent.documents.conversion.by_content import ByContent
from docllm.agent.documents.conversion.converters import Converters
from docllm.agent.documents.files import FileSource
from docllm.agent.documents.reader import Documents
from docllm.schemas.documents.limits import MAX_DOCUMENT_BYTES
from docllm.schemas.runtime.executors import InlineExecutor


def file_documents(
    *roots: Path, own: Sequence[Path] = (), max_bytes: int = MAX_DOCUMENT_BYTES
) -> Documents:
    inline = InlineExecutor()
    files = FileSource(roots=roots, own=own, executor=inline, max_bytes=max_bytes)
    return Documents(
        sources={"file": files},
        conversion=ByContent(
            executor=inline, converters=Converters(thread=inline, max_processes=1)
        ),
        executor=inline,
    )
