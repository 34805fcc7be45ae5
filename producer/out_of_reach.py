"""Which documents that tasks name by URI lie where no agent may read them, as far as this configuration says. It opens no file."""

import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from producer.no_documents import is_hidden, is_own, resolved, root_of

_PARTS, _MOST = 3, 3  # folders that differ in their first parts (the root counts) are told apart; so many are told


class OutOfReach:
    """Counts the documents that are below none of `roots`, links resolved as agents do, and knows which folders hold them.

    What no root would let an agent read is not counted: hidden files, and those of docllm's own.
    """

    def __init__(self, roots: Iterable[Path], own: Iterable[Path] = ()) -> None:
        self._roots, self._own = resolved(roots), resolved(own)
        self._folders: dict[tuple[str, ...], str] = {}
        self._more = False
        self.count = 0

    def add(self, uri: str) -> None:
        """Look at the document of one task."""
        path = unquote(urlsplit(uri).path, errors="surrogateescape")
        if "\0" in path:  # no path at all: its task is dead wherever it runs
            return
        real = Path(os.path.realpath(path))
        if is_own(real, self._own) or is_hidden([real.name]) or root_of(real, self._roots, self._own) is not None:
            return
        self.count += 1
        self._remember(real.parent)

    def _remember(self, folder: Path) -> None:
        start = folder.parts[:_PARTS]
        if start in self._folders:
            self._folders[start] = os.path.commonpath([self._folders[start], folder])
        elif len(self._folders) < _MOST:
            self._folders[start] = str(folder)
        else:
            self._more = True

    def __str__(self) -> str:
        """Return what to set, with the roots that there are."""
        wanted = os.pathsep.join([*map(str, self._roots), *self._folders.values()])
        return f"DOCLLM_DOCUMENT_ROOTS={wanted}" + (", and others" if self._more else "")
