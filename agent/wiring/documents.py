"""Builds the reader of documents from the settings.

Tested by tests/integration/test_load_documents.py.
"""

from agent.documents import Documents
from agent.documents.files import Files
from agent.documents.plain import PlainText
from producer.input.excluded_files import own_files
from schemas.runtime.executors import Executor
from schemas.settings.config import Config


def make_documents(config: Config, executor: Executor) -> Documents:
    """Return a reader of the documents that the settings allow."""
    return Documents(
        sources={
            "file": Files(roots=config.roots(), own=own_files(config), executor=executor),
        },
        conversion=PlainText(executor=executor),
        executor=executor,
    )
