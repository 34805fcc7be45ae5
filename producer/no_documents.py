"""Tell which files are never documents: docllm's own, which hold keys and other tasks, and hidden ones.

`load --documents` leaves them out, and agents refuse them below every root. This opens no file.
"""

import os
from collections.abc import Collection, Iterable
from pathlib import Path

from producer.lines import REJECTS_SUFFIX
from schemas.config import Config
from schemas.setting_file import FILE


def own_files(config: Config) -> tuple[Path, ...]:
    """Return the configuration file and the data folder."""
    return (config.data_dir, *((config.file,) if config.file is not None else ()))


def resolved(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return these paths without links."""
    return tuple(Path(os.path.realpath(path)) for path in paths)


def is_own(path: Path, own: Collection[Path]) -> bool:
    """Return whether a path without links is a configuration or rejects file, or is, or lies in, one of `own`."""
    return path.name == FILE or path.name.endswith(REJECTS_SUFFIX) or any(path.is_relative_to(one) for one in own)


def is_hidden(parts: Iterable[str]) -> bool:
    """Return whether a name of these, of folders or of the file, begins with a dot."""
    return any(part.startswith(".") for part in parts)


def root_of(path: Path, roots: Iterable[Path], own: Collection[Path]) -> Path | None:
    """Return the root below which agents may read a file, None where there is none; all paths without links."""
    if is_own(path, own):
        return None
    return next(
        (root for root in roots if path != root and path.is_relative_to(root) and not is_hidden(path.relative_to(root).parts)), None
    )
