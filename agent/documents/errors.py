"""The errors of documents, by class."""

import re

from docllm.agent.handlers.documents import DocumentError
from docllm.schemas.task.failures import ErrorClass

_USER = re.compile(r"(?<=//)(?>(?:[^/@]*+@)+)")


def refused(text: str) -> DocumentError:
    """Return the error of a document that no attempt can read: its task is given up."""
    return DocumentError(ErrorClass.DOCUMENT_REFUSED, text)


def changed(text: str) -> DocumentError:
    """Return the error of a document that has changed since its task was loaded."""
    return DocumentError(ErrorClass.DOCUMENT_CHANGED, text)


def unreadable(text: str) -> DocumentError:
    """Return the error of a document that may be readable later: its task is retried."""
    return DocumentError(ErrorClass.DOCUMENT_UNREADABLE, text)


def shown_uri(uri: str) -> str:
    """Return a URI as errors show it: without its query and its user, which may hold secrets."""
    return _USER.sub("", uri.partition("?")[0])
