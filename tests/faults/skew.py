"""A clock that jumps, for one agent, by libfaketime; only the time of day is wrong.

libfaketime reads a file each second.
"""

import subprocess
from pathlib import Path

from tests.servers.process import ServerMissingError, program

FILE = "clock"
WAITS = Path(__file__).with_name("waits.c")
PLACES = (
    "/usr/lib/*/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
    "/usr/local/lib/faketime/libfaketimeMT.so.1",
)


def library() -> Path:
    """Return libfaketime's path. Raises ServerMissingError if it is not installed."""
    for place in PLACES:
        for library in Path("/").glob(place.removeprefix("/")):
            return library
    raise ServerMissingError(
        "libfaketime (Debian package faketime) is not installed; run: python -m "
        "tests.servers install"
    )


def waits(folder: Path) -> Path:
    """Return the library of waits that libfaketime lacks, built in a folder.

    Raises ServerMissingError if there is no compiler.
    """
    built = folder / "waits.so"
    if not built.exists():
        compiler = program("cc", package="build-essential")
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(built), str(WAITS)],
            check=True,
        )
    return built


def environ(folder: Path) -> dict[str, str]:
    """Return the environment that gives a program the clock of a folder."""
    if not (folder / FILE).exists():
        jump(folder, 0)
    return {
        "LD_PRELOAD": f"{waits(folder)}:{library()}",
        "FAKETIME_TIMESTAMP_FILE": str(folder / FILE),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",  # the variable of this version of the library
    }


def jump(folder: Path, by_s: float) -> None:
    """Set the clock of a folder forward or back, relative to the real time."""
    part = folder / f"{FILE}.part"
    part.write_text(f"{by_s:+.0f}\n")
    part.replace(folder / FILE)
