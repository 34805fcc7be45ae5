"""The parent's end of a pipe from a child: whole lines, never a wait."""

import os
from contextlib import suppress

_PART_BYTES = 1 << 16
# A longer line is passed on in parts, so that a child without line ends cannot fill the memory.
LINE_BYTES = 1 << 20


class LinePipe:
    """Reads lines from a descriptor, which it closes at the end."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.open = True
        self._rest = b""

    def lines(self) -> list[bytes]:
        """Return the lines that have arrived, without their ends."""
        part = self._part()
        *lines, self._rest = (self._rest + part).split(b"\n")
        if len(self._rest) > LINE_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        return lines

    def close(self) -> list[bytes]:
        """Return what is left, and close the descriptor.

        A process that the child started may hold the other end open, so this waits for nothing.
        """
        lines = []
        while self.open and (arrived := self._part()):
            *whole, self._rest = (self._rest + arrived).split(b"\n")
            lines += whole
        lines += [self._rest] if self._rest else []
        self._rest = b""
        self.open = False
        with suppress(OSError):
            os.close(self.descriptor)
        return lines

    def _part(self) -> bytes:
        if not self.open:
            return b""
        try:
            part = os.read(self.descriptor, _PART_BYTES)
        except BlockingIOError:
            return b""
        self.open = bool(part)
        return part
