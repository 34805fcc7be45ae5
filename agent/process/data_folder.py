"""Watches the files of the embedded parts that an agent has open.

If they were removed or replaced, the agent's work would be lost unnoticed.
"""

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.runtime.clock import Clock

CHECK_EVERY_S = 3.0


def watch_of_files(
    files: Sequence[Path], *, clock: Clock
) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return what checks every few seconds that these paths name the same files as now.

    A file that is missing now is not watched. Until cancelled, it raises UnsafeStateError if a path
    names another file than before, or none.
    """
    opened = {path: identity for path in files if (identity := _identity(path)) is not None}

    async def watch() -> None:
        while True:
            await clock.sleep(CHECK_EVERY_S)
            for path, identity in opened.items():
                if _identity(path) != identity:
                    raise UnsafeStateError(
                        f"{path} was removed or replaced while this agent had it open, "
                        "so its work is no longer stored; start the agent again, and stop all "
                        "agents before you touch the data folder"
                    )

    return watch


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode; None if the file is missing.

    They change if another file gets the same name.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino
