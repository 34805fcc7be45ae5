"""The files of the embedded parts, watched by an agent that has them open: removed or replaced ones would take its work unseen."""

from collections.abc import Sequence
from pathlib import Path

from schemas.clock import Clock
from schemas.errors import UnsafeStateError

LOOK_S = 3.0


class DataFolder:
    """The files as they are when an agent starts, by their paths; one that is not there then is not watched."""

    def __init__(self, files: Sequence[Path], clock: Clock) -> None:
        self._clock = clock
        self._opened = {path: found for path in files if (found := _identity(path)) is not None}

    async def run(self) -> None:
        """Look at them every few seconds, until cancelled. Raises UnsafeStateError when a path names another file, or none."""
        while True:
            await self._clock.sleep(LOOK_S)
            for path, opened in self._opened.items():
                if _identity(path) != opened:
                    raise UnsafeStateError(
                        f"{path} was removed or replaced while this agent had it open, and what it does is kept nowhere any more; "
                        "start it again, and stop all agents before the data folder is touched"
                    )


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one of its name; None where there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
