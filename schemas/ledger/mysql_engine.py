"""Connections to MySQL and MariaDB: opened, limited in time, and cut when a program leaves."""

import socket
import threading
import weakref
from contextlib import closing, suppress
from functools import partial
from typing import Any

from sqlalchemy import Engine, create_engine, event

from docllm.schemas.errors import ConfigError
from docllm.schemas.ledger.errors import CANNOT_CONNECT

# The server ends a statement after this share of the client's timeout. Otherwise the old statement
# would still run while the client already retries it.
_STATEMENT_SHARE = 0.8
# Nobody can use a table while a migration waits for its lock, so it waits no longer than this.
_TABLE_LOCK_S = 60
# A server may be configured to truncate long values and to clamp numbers without an error. The mode
# is set while the connection is made: SQLAlchemy reads it once, before other statements are sent.
_SQL_MODE = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"


def mysql_engine(
    url: str,
    connections: int,
    *,
    timeout_s: int | None,
    reads_s: int | None,
    autocommit: bool,
) -> Engine:
    """Return the engine for a server, with connections set up for the ledger.

    A program waits `timeout_s` for an answer, or any time. If it only reads, each read may take
    `reads_s`.
    """
    client_s = None if timeout_s is None else timeout_s + (reads_s or 0)
    statement_s = _STATEMENT_SHARE * (timeout_s or 0) if reads_s is None else reads_s
    engine = create_engine(
        url,
        isolation_level="AUTOCOMMIT" if autocommit else "READ COMMITTED",
        pool_size=connections,
        max_overflow=0,
        pool_timeout=30,
        # Every claim pays for every round trip. `run_singly` notices a dead connection at its first
        # statement, and retries. A transaction always ends before its connection is returned, so
        # there is nothing to reset.
        pool_pre_ping=not autocommit,
        pool_reset_on_return=None,
        skip_autocommit_rollback=autocommit,
        pool_recycle=900,
        hide_parameters=True,
        # No driver has a time limit by default: a frozen server would hold the thread for ever.
        connect_args={
            "connect_timeout": min(5, client_s or 5),
            "read_timeout": client_s,
            "write_timeout": client_s,
            "sql_mode": _SQL_MODE,
        },
    )
    event.listen(engine, "do_connect", _connect_mysql)
    prepare = partial(_prepare_mysql, waits_for_ever=timeout_s is None, statement_s=statement_s)
    event.listen(engine, "connect", prepare)
    return engine


class Sockets:
    """The open connections of an engine, so that blocked calls can be interrupted.

    The driver waits on its socket and can only be interrupted by a shutdown of the socket.
    """

    def __init__(self) -> None:
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()

    def watch(self, engine: Engine) -> None:
        """Register every connection that the engine opens."""
        event.listen(engine, "connect", self._register)

    def cut(self) -> None:
        """Make every call that waits for an answer fail."""
        with self._lock:
            # PyMySQL has no public name for it
            sockets = [connection._sock for connection in self._connections]  # noqa: SLF001
        for opened in sockets:
            if opened is not None:
                with suppress(OSError):
                    opened.shutdown(socket.SHUT_RDWR)

    def _register(self, dbapi: Any, _record: object) -> None:
        with self._lock:
            self._connections.add(dbapi)


def _connect_mysql(dialect: Any, _record: object, arguments: Any, settings: Any) -> Any:
    """Open a connection whose greeting is awaited no longer than the connect timeout.

    A server that accepts connections but sends no greeting is frozen, and a thread that waits for
    the greeting cannot be interrupted. A certificate that cannot be read counts as an unreachable
    server, because the file may just be being exchanged.
    """
    # An embedded ledger needs no PyMySQL.
    from docllm.schemas.ledger.mysql_connection import MySQLConnection  # noqa: PLC0415

    try:
        connection = MySQLConnection(
            *arguments, **settings | {"read_timeout": settings["connect_timeout"]}
        )
    except OSError as error:
        raise dialect.loaded_dbapi.OperationalError(
            CANNOT_CONNECT, f"{error}; check the files named by the ssl_ options"
        ) from None
    except UnicodeError:  # the error's text quotes the password
        raise ConfigError(
            "the database's address has an impossible host, name or password; "
            "check DOCLLM_DATABASE_URL"
        ) from None
    # PyMySQL has one limit for greeting and statements
    connection._read_timeout = settings["read_timeout"]  # noqa: SLF001
    return connection


def _is_mariadb(cursor: Any) -> bool:
    cursor.execute("SELECT VERSION()")
    return "mariadb" in cursor.fetchone()[0].lower()


def _prepare_mysql(
    dbapi: Any, _record: object, *, waits_for_ever: bool, statement_s: float
) -> None:
    """Set the variables of a connection; a limit of 0 means no limit."""
    with closing(dbapi.cursor()) as cursor:
        mariadb = _is_mariadb(cursor)
        settings = ["time_zone='+00:00'", "innodb_lock_wait_timeout=5", "wait_timeout=30"]
        if mariadb:
            settings += [f"max_statement_time={statement_s}", "idle_transaction_timeout=15"]
        else:
            settings.append(f"max_execution_time={int(1000 * statement_s)}")
        if waits_for_ever:
            settings.append(f"lock_wait_timeout={_TABLE_LOCK_S}")
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.execute(f"SET {', '.join(settings)}")
