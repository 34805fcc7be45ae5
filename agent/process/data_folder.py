"""Watches the files of the embedded parts that an agent has open.

If they were removed or replaced, the agent's work would be lost unnoticed.
"""

from collections.abc import Sequence
from pathlib import Path

from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.runtime.clock import Clock

CHECK_EVERY_S = 3.0


class DataFolder:
    """The files as they are when an agent starts; a file that is missing then is not watched."""

    def __init__(self, files: Sequence[Path], *, clock: Clock) -> None:
        self._clock = clock
        self._opened = {
            path: identity for path in files if (identity := _identity(path)) is not None
        }

    async def run(self) -> None:
        """Check the files every few seconds until cancelled.

        Raises UnsafeStateError if a path names another file than before, or none.
        """
        while True:
            await self._clock.sleep(CHECK_EVERY_S)
            for path, opened in self._opened.items():
                if _identity(path) != opened:
                    raise UnsafeStateError(
                        f"{path} was removed or replaced while this agent had it open, "
                        "so its work is no longer stored; start the agent again, and stop all "
                        "agents before you touch the data folder"
                    )


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode; None if the file is missing.

    They change if another file gets the same name.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino
