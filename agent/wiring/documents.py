"""Builds the reader of documents from the settings."""

from docllm.agent.documents.conversion.by_content import ByContent, TextMaker
from docllm.agent.documents.conversion.kept_texts import KeptTexts
from docllm.agent.documents.files import FileSource
from docllm.agent.documents.objects import ObjectSource
from docllm.agent.documents.reader import Documents
from docllm.agent.documents.web import WebSource
from docllm.producer.input.excluded_files import own_files
from docllm.schemas.objects.address import SCHEMES
from docllm.schemas.objects.store import ObjectStores, require_library
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.settings.config import Config


def make_documents(config: Config, executor: Executor, converters: TextMaker) -> Documents:
    """Return a reader of the documents that the settings allow.

    Raises ConfigError if they allow objects and the library for them is missing.
    """
    require_library(config.document_allow)
    objects = ObjectSource(allow=config.document_allow, stores=ObjectStores())
    web = WebSource(allow=config.document_allow, private=config.document_private, executor=executor)
    return Documents(
        sources={
            "file": FileSource(roots=config.roots(), own=own_files(config), executor=executor),
            "https": web,
            "http": web,  # which refuses it, and says why
            **dict.fromkeys(SCHEMES, objects),
        },
        conversion=ByContent(executor=executor, converters=converters, kept=_kept_texts(config)),
        executor=executor,
    )


def _kept_texts(config: Config) -> KeptTexts | None:
    if not config.document_kept_mb:
        return None
    return KeptTexts(folder=config.texts_folder, most_bytes=config.document_kept_mb << 20)
