"""Finds documents named by URI that lie where no agent may read them.

It knows this configuration only, and opens no file.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from docllm.producer.input.excluded_files import is_hidden, is_own, resolved, root_of

_PARTS = 3  # the first parts of a path, its root included, by which folders are told apart
_MAX_SHOWN = 3  # folders that are shown


class UnreachableDocuments:
    """Counts the documents outside all of `roots`, and remembers which folders hold them.

    Links are resolved as agents resolve them. Documents that no agent may read below any root,
    hidden files and docllm's own, are not counted.
    """

    def __init__(self, roots: Iterable[Path], *, own: Iterable[Path] = ()) -> None:
        self._roots, self._own = resolved(roots), resolved(own)
        self._folders: dict[tuple[str, ...], str] = {}
        self._more = False
        self.count = 0

    def add(self, uri: str) -> None:
        """Check the document of one task."""
        path = unquote(urlsplit(uri).path, errors="surrogateescape")
        if "\0" in path:  # not a valid path: its task fails on every agent
            return
        target = Path(os.path.realpath(path))
        is_document = not is_own(target, self._own) and not is_hidden([target.name])
        if is_document and root_of(target, self._roots, self._own) is None:
            self.count += 1
            self._remember(target.parent)

    def _remember(self, folder: Path) -> None:
        start = folder.parts[:_PARTS]
        if start in self._folders:
            self._folders[start] = os.path.commonpath([self._folders[start], folder])
        elif len(self._folders) < _MAX_SHOWN:
            self._folders[start] = str(folder)
        else:
            self._more = True

    def __str__(self) -> str:
        """Return the setting that would allow all documents, the present roots included."""
        roots = os.pathsep.join([*map(str, self._roots), *self._folders.values()])
        return f"DOCLLM_DOCUMENT_ROOTS={roots}" + (", and others" if self._more else "")
