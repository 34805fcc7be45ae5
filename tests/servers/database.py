"""What MariaDB and MySQL have in common as servers under test.

Both run with another time zone and another character set than docllm's, so that mistakes show.
"""

import os
import pwd
from contextlib import closing
from pathlib import Path

import pymysql

from tests.servers.process import START_S, Server

SETTINGS = (
    "--bind-address=127.0.0.1",
    "--socket=server.sock",
    "--pid-file=server.pid",
    "--skip-name-resolve",
    "--skip-log-bin",
    "--max-connections=300",
    "--max-allowed-packet=64M",
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-buffer-pool-size=128M",
    # Deliberately not what docllm stores: a forgotten UTC or utf8mb4 must show in a test.
    "--default-time-zone=+05:00",
    "--character-set-server=latin1",
)

FIRST_STATEMENTS = """
CREATE DATABASE docllm;
FLUSH PRIVILEGES;
CREATE USER 'docllm'@'127.0.0.1';
GRANT ALL PRIVILEGES ON *.* TO 'docllm'@'127.0.0.1' WITH GRANT OPTION;
"""


class DatabaseServer(Server):
    """A single server with the database `docllm` and a user `docllm`.

    The user has no password and all privileges.
    """

    def start(self, *, timeout_s: float = START_S) -> None:
        """Start as every server, with a folder for temporary files that is this server's alone.

        A MariaDB that starts deletes the temporary tables of any other in the same folder.
        """
        self._temporary.mkdir(parents=True, exist_ok=True)
        super().start(timeout_s=timeout_s)

    @property
    def url(self) -> str:
        """Return the address of the database `docllm`."""
        return self._url("docllm")

    def create_database(self, name: str) -> str:
        """Make an empty database, replacing one of the same name, and return its address."""
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS `{name}`")
            cursor.execute(f"CREATE DATABASE `{name}`")
        return self._url(name)

    def ready(self) -> bool:
        """Return whether the user can log in."""
        try:
            self._connect().close()
        except pymysql.Error:
            return False
        return True

    def _url(self, database: str) -> str:
        return f"mysql://docllm@127.0.0.1:{self.port}/{database}"

    def _connect(self) -> "pymysql.Connection[pymysql.cursors.Cursor]":
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="docllm",
            connect_timeout=2,
            read_timeout=10,
            ssl_disabled=True,  # PyMySQL would load the system's certificates, for 25 ms of CPU
        )

    def _where(self) -> list[str]:
        # A server that runs as root demands an explicit --user.
        return [
            f"--user={pwd.getpwuid(os.geteuid()).pw_name}",
            f"--datadir={self.folder}/data",
            f"--tmpdir={self._temporary}",
        ]

    @property
    def _temporary(self) -> Path:
        return self.folder / "tmp"
