"""MySQL, from the packages of Debian unstable, the only part of Debian that has it.

The packages are unpacked into a folder of their own with every library they need, the C library
included, so nothing of the machine's own system is touched. The version is whatever unstable has.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.servers.cache import appears, cache
from tests.servers.database import FIRST_STATEMENTS, SETTINGS, DatabaseServer
from tests.servers.process import ServerMissingError, program

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCE = f"""
Types: deb
URIs: http://deb.debian.org/debian
Suites: unstable
Components: main
Signed-By: {KEYRING}
"""


def tree() -> Path:
    """Return the folder of the unpacked packages, whether it exists or not."""
    return cache() / "mysql"


def fetch() -> None:
    """Download and unpack the server and its libraries.

    Raises ServerMissingError if this is not Debian or apt-get fails.
    """
    if tree().exists():
        return
    if not Path(KEYRING).exists():
        raise ServerMissingError(f"MySQL is taken from Debian, and {KEYRING} is not there")
    with appears(tree()) as root:
        for package in _download(root / "apt"):
            subprocess.run(["dpkg", "--extract", package, root], check=True)
        shutil.rmtree(root / "apt")


def _download(folder: Path) -> list[Path]:
    # The lists, cache and status of this apt-get are its own: an empty status makes it fetch every
    # library as well.
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    (folder / "debian.sources").write_text(SOURCE)
    (folder / "status").touch()
    apt = [
        program("apt-get", package="apt"),
        "-qq",
        *(f"--option={option}" for option in _apart(folder)),
    ]
    try:
        subprocess.run([*apt, "update"], check=True)
        subprocess.run(
            [
                *apt,
                "install",
                "-y",
                "--download-only",
                "--no-install-recommends",
                "mysql-server-core",
            ],
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise ServerMissingError(
            f"MySQL could not be fetched from Debian unstable: {error}"
        ) from error
    return sorted(folder.glob("cache/archives/*.deb"))


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


class MySQL(DatabaseServer):
    """A single MySQL."""

    name = "mysql"

    def prepare(self) -> None:
        """Make the system tables, the database and the user, once."""
        if not tree().exists():
            raise ServerMissingError("MySQL is not there; run: python -m tests.servers install")
        if (self.folder / "ready").exists():
            return
        first = self.folder / "first.sql"
        first.write_text(FIRST_STATEMENTS)
        self.run(
            [*self._program(), "--initialize-insecure", f"--init-file={first}", *self._where()]
        )
        (self.folder / "ready").touch()

    def command(self) -> Sequence[str]:
        """Return the server's command line."""
        return [
            *self._program(),
            *self._where(),
            f"--port={self.port}",
            "--mysqlx=OFF",
            "--performance-schema=OFF",
            *SETTINGS,
        ]

    def _program(self) -> list[str]:
        # Start it by the loader that was unpacked with it, because the machine's C library may be
        # older than it needs.
        usr = tree() / "usr"
        (loader,) = usr.glob("lib*/ld-linux*.so.*")
        libraries = ":".join(str(path) for path in usr.glob("lib/*-linux-gnu*"))
        files = [
            f"--lc-messages-dir={usr}/share/mysql",
            f"--plugin-dir={usr}/lib/mysql/plugin",
            "--secure-file-priv=",
        ]
        return [
            str(loader),
            "--library-path",
            libraries,
            str(usr / "sbin/mysqld"),
            "--no-defaults",
            *files,
        ]
