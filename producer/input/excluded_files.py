"""Knows which files are never documents: hidden files, docllm's own, and the system's.

docllm's own files hold keys and other tasks. `load --documents` leaves such files out, and agents
refuse them below every root. The system's files include the environments of processes, which
contain keys, and mounted secrets. Agents refuse them even below a root such as `/`. A file's other
names, its hard links, are told by its device and inode. This module opens no file.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from urllib.parse import unquote, urlsplit

from docllm.producer.input.lines import REJECTS_SUFFIX
from docllm.schemas.settings.config import Config

# A copy of `docllm.toml` that an editor or a person made has the same keys.
_CONFIGURATION = re.compile(r"#?docllm(?>(?:[^/.]|\.(?!toml))*)\.toml.*", re.DOTALL)
_SYSTEM = tuple(map(Path, ("/proc", "/sys", "/dev", "/run/secrets", "/var/run/secrets")))


def own_files(config: Config) -> tuple[Path, ...]:
    """Return the paths of the configuration file, the data folder and uploaded files."""
    others = (config.file, config.serve_files)
    return (config.data_dir, *(path for path in others if path is not None))


def file_of(uri: str) -> Path | None:
    """Return the path that a file's URI names, with all links resolved; None if it can be none."""
    path = unquote(urlsplit(uri).path, errors="surrogateescape")
    return None if "\0" in path else Path(os.path.realpath(path))


def resolved(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return these paths with all links resolved."""
    return tuple(Path(os.path.realpath(path)) for path in paths)


def is_own(path: Path, own: Collection[Path]) -> bool:
    """Return whether a path is a configuration or rejects file, or lies in or is one of `own`.

    The path must have no links.
    """
    return (
        _CONFIGURATION.fullmatch(path.name) is not None
        or path.name.endswith(REJECTS_SUFFIX)
        or any(path.is_relative_to(own_path) for own_path in own)
    )


def inodes(own: Iterable[Path]) -> frozenset[tuple[int, int]]:
    """Return what tells these files, and those below them, by any name: device and inode."""
    return frozenset(_inodes(own))


def _inodes(own: Iterable[Path]) -> Iterator[tuple[int, int]]:
    for path in own:
        for file in chain([path], path.rglob("*")):
            with suppress(OSError):  # it is gone
                status = file.stat()
                yield status.st_dev, status.st_ino


def is_hidden(parts: Iterable[str]) -> bool:
    """Return whether any name in a path, of a folder or of the file, begins with a dot."""
    return any(part.startswith(".") for part in parts)


def root_of(path: Path, roots: Iterable[Path], own: Collection[Path]) -> Path | None:
    """Return the root below which agents may read a file, or None. All paths must have no links."""
    if is_own(path, own):
        return None
    for root in roots:
        is_below = path != root and path.is_relative_to(root)
        if is_below and not is_hidden(path.relative_to(root).parts) and not _is_system(path, root):
            return root
    return None


def _is_system(path: Path, root: Path) -> bool:
    """Return whether a file is the system's; a root inside a folder of the system is allowed."""
    return any(
        path.is_relative_to(folder) and not root.is_relative_to(folder) for folder in _SYSTEM
    )
