"""Programs of Debian unstable, the only part of Debian that has them.

Their packages are unpacked into a folder of their own, so nothing of the machine's own system is
touched. The versions are whatever unstable has.
"""

import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.servers.cache import appears
from tests.servers.process import ServerMissingError, program

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCE = f"""
Types: deb
URIs: {{mirror}}
Suites: unstable
Components: main
Signed-By: {KEYRING}
"""
# Every library that a package needs comes too, the C library included.
WITH_LIBRARIES = ("install", "-y", "--download-only", "--no-install-recommends")
ALONE = ("download",)


def unpack(target: Path, how: Sequence[str], *packages: str) -> None:
    """Download the packages and unpack them into the folder `target`, unless it exists.

    Raises ServerMissingError if this is not Debian or apt-get fails.
    """
    if target.exists():
        return
    with appears(target) as root:
        for package in _download(root / "apt", how, packages):
            subprocess.run(["dpkg", "--extract", package, root], check=True)
        shutil.rmtree(root / "apt")


def mirror() -> str:
    """Return the address from which this Debian takes its own packages.

    Raises ServerMissingError if this is no Debian.
    """
    apt = program("apt-get", package="apt")
    codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    printed = subprocess.run(
        [apt, "update", "--print-uris"], capture_output=True, text=True, check=False
    )
    found = re.search(rf"^'(\S+)/dists/{codename}/InRelease'", printed.stdout, re.MULTILINE)
    if not Path(KEYRING).exists() or found is None:
        raise ServerMissingError(f"this is no Debian with {KEYRING} and a mirror of its own")
    return found[1]


def _download(folder: Path, how: Sequence[str], packages: Sequence[str]) -> list[Path]:
    # The lists, cache and status of this apt-get are its own: an empty status makes it fetch every
    # library as well.
    archives = folder / "cache/archives"
    for part in (folder / "lists/partial", archives / "partial"):
        part.mkdir(parents=True)
    (folder / "debian.sources").write_text(SOURCE.format(mirror=mirror()))
    (folder / "status").touch()
    options = [f"--option={option}" for option in _apart(folder)]
    apt = [program("apt-get", package="apt"), "-qq", *options]
    try:
        subprocess.run([*apt, "update"], check=True)
        subprocess.run([*apt, *how, *packages], cwd=archives, check=True)
    except subprocess.CalledProcessError as error:
        raise ServerMissingError(
            f"{packages[0]} could not be fetched from Debian unstable: {error}"
        ) from error
    return sorted(archives.glob("*.deb"))


def _apart(folder: Path) -> list[str]:
    return [
        f"Dir::Etc::sourcelist={folder}/debian.sources",
        "Dir::Etc::sourceparts=-",
        f"Dir::State::lists={folder}/lists",
        f"Dir::State::status={folder}/status",
        f"Dir::Cache={folder}/cache",
        "Debug::NoLocking=true",
        "APT::Sandbox::User=root",
    ]
