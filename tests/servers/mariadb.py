"""MariaDB, from Debian's package."""

from collections.abc import Sequence

from tests.servers.database import FIRST_STATEMENTS, SETTINGS, DatabaseServer
from tests.servers.process import program

PACKAGE = "mariadb-server-core"


class MariaDB(DatabaseServer):
    """A single MariaDB."""

    name = "mariadb"

    def prepare(self) -> None:
        """Make the system tables, the database and the user, once."""
        if (self.folder / "ready").exists():
            return
        install = program("mariadb-install-db", package=PACKAGE)
        self.run(
            [
                install,
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                *self._where(),
            ]
        )
        self.run([*self._program(), "--bootstrap", *self._where()], stdin=FIRST_STATEMENTS)
        (self.folder / "ready").touch()

    def command(self) -> Sequence[str]:
        """Return the server's command line."""
        return [*self._program(), *self._where(), f"--port={self.port}", *SETTINGS]

    def _program(self) -> list[str]:
        return [program("mariadbd", package=PACKAGE), "--no-defaults"]
