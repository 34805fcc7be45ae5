"""Runs docllm's programs on a pseudo terminal, as a person sees them."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from dataclasses import dataclass

from tests.integration.support.deployment import Deployment
from tests.integration.support.programs import PATIENCE_S

# The colours of a terminal's text; 1 is bold and 2 is dim.
SGR = re.compile(r"\x1b\[([0-9;]*)m")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COLOURS = frozenset({"31", "32", "33", "34", "35", "36", "91", "92", "93", "95", "96"})


@dataclass(frozen=True, slots=True)
class Screen:
    """What a program wrote to its terminal, and its exit code."""

    raw: str
    code: int

    @property
    def text(self) -> str:
        """Return the text without colours and moves of the cursor."""
        return _CONTROL.sub("", self.raw).replace("\r", "")

    @property
    def last(self) -> list[str]:
        """Return the lines of the last screen of a program that draws over its lines."""
        *_, last = self.raw.rpartition("\x1b[1A")
        return _CONTROL.sub("", last).replace("\r", "").splitlines()

    @property
    def colours(self) -> set[str]:
        """Return the codes of the colours that it used."""
        return {code for codes in SGR.findall(self.raw) for code in codes.split(";")} & _COLOURS

    def coloured(self, code: str) -> str:
        """Return all text in this colour."""
        parts, colour = [], set[str]()
        place = 0
        for match in SGR.finditer(self.raw):
            if code in colour:
                parts.append(self.raw[place : match.start()])
            colour = set(match[1].split(";")) if match[1] not in {"", "0"} else set()
            place = match.end()
        return "\n".join(parts)


def on_terminal(
    deployment: Deployment, *arguments: str, columns: int = 80, **environ: str
) -> Screen:
    """Run `python -m ARGUMENTS` of the group on a terminal, to its end."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-m", *arguments, "--group", deployment.group],
        cwd=deployment.folder,
        env={**deployment.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", **environ},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    ) as program:
        os.close(slave)
        read: list[bytes] = []
        with suppress(OSError):  # a terminal without a program ends with an error
            while part := os.read(master, 65536):
                read.append(part)
        os.close(master)
        code = program.wait(PATIENCE_S)
    return Screen(b"".join(read).decode(), code)
