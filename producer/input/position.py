"""How far an input has been read, so that a load can say when it will end."""

import os
import stat
from contextlib import suppress
from typing import IO


class Position:
    """The read position in the input file, in bytes on disk (compressed bytes for a gzip file).

    Another thread may read the file.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._done = 0
        self.total: int | None = None

    def follow(self, file: IO[bytes]) -> None:
        """Follow a file that was opened. A stream has no total."""
        self._file, self._done, self.total = file, 0, None
        with suppress(OSError, ValueError):  # no file of the system, as in a test
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode):
                self.total = status.st_size

    @property
    def done(self) -> int:
        """How many bytes were read; after the end, all of them."""
        if self._file is None or self.total is None:
            return 0
        try:
            self._done = self._file.tell()
        except (OSError, ValueError):  # it is closed
            self._done = self.total
        return self._done
