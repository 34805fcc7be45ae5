"""Finds documents named by URI that lie below no prefix from which agents may read.

It knows this configuration only, and asks no server.
"""

from collections.abc import Iterable

from docllm.schemas.task.allowed_uris import allowed

_MAX_SHOWN = 3  # servers and buckets that are shown
_HOST = 3  # the parts of a URI up to its host or bucket


class UnallowedDocuments:
    """Counts the documents outside all `prefixes`, and remembers which folders hold them."""

    def __init__(self, prefixes: Iterable[str]) -> None:
        self._prefixes = tuple(prefixes)
        self._folders: dict[str, list[str]] = {}  # by server or bucket, in parts
        self._more = False
        self.count = 0

    def add(self, uri: str) -> None:
        """Check the document of one task."""
        if not allowed(uri, self._prefixes):
            self.count += 1
            self._remember(uri.partition("?")[0].split("/")[:-1])

    def _remember(self, folder: list[str]) -> None:
        host = "/".join(folder[:_HOST])
        if host in self._folders:
            self._folders[host] = _common(self._folders[host], folder)
        elif len(self._folders) < _MAX_SHOWN:
            self._folders[host] = folder
        else:
            self._more = True

    def __str__(self) -> str:
        """Return the setting that would allow all documents, the present prefixes included."""
        folders = ("/".join([*folder, ""]) for folder in self._folders.values())
        prefixes = ",".join([*self._prefixes, *folders])
        return f"DOCLLM_DOCUMENT_ALLOW={prefixes}" + (", and others" if self._more else "")


def _common(one: list[str], other: list[str]) -> list[str]:
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return one[:length]
