"""MySQL, from the packages of Debian unstable, the only part of Debian that has it.

It is unpacked with every library that it needs, the C library included.
"""

from collections.abc import Sequence
from pathlib import Path

from tests.servers import unstable
from tests.servers.cache import cache
from tests.servers.database import FIRST_STATEMENTS, SETTINGS, DatabaseServer
from tests.servers.process import ServerMissingError


def tree() -> Path:
    """Return the folder of the unpacked packages, whether it exists or not."""
    return cache() / "mysql"


def fetch() -> None:
    """Download and unpack the server and its libraries.

    Raises ServerMissingError if this is not Debian or apt-get fails.
    """
    unstable.unpack(tree(), unstable.WITH_LIBRARIES, "mysql-server-core")


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
