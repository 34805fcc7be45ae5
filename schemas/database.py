"""The database connection: engines, and transactions that are run again until they are through.

4 in 10 COMMITs that raise "connection lost" have committed: every function that is given to `run` must be safe to run twice.
"""

import logging
import random
import socket
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from schemas.database_errors import NO_WAY, READ_ONLY, code, passing, too_long
from schemas.errors import ConfigError, UnreachableError, UnsafeStateError

# What others than adapters need to name: a transaction in progress, and any error of the database.
__all__ = ["Connection", "Database", "DatabaseError", "Stopped"]

log = logging.getLogger(__name__)

DatabaseError = SQLAlchemyError
Result = TypeVar("Result")

_REFUSED = frozenset({1044, 1045, 1049, 1698})  # user, password or database are not known there
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0
_TOLD_AFTER = 10  # failures, some five seconds
TIMEOUT_S = 30
# A record of 4 MiB as hexadecimal digits, in one statement with a megabyte of others.
LEAST_PACKET_BYTES = 10 << 20
# A server may be set to cut what is too long and to clamp numbers without an error. It is said as the connection is made: who asks
# for the mode once, before other statements are sent, must see this one.
_SQL_MODE = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"


class Stopped(Exception):  # noqa: N818 - it is no error: somebody asked for it
    """The program is leaving: the transaction is not tried again. It may have committed."""


class Database:
    """One database, used from a few dedicated threads. `stopping` ends the patience of every call.

    With `reads_s` a program reads only, and may take so long over it: then the server ends the statement, as one that its client has
    left would run on beside its repetition, and the error is raised.
    """

    def __init__(
        self,
        url: str,
        *,
        connections: int = 4,
        timeout_s: int = TIMEOUT_S,
        reads_s: int | None = None,
        pause: Callable[[float], Any] | None = None,
    ) -> None:
        timeout_s += reads_s or 0
        self._reads_only = reads_s is not None
        self.stopping = threading.Event()
        self._pause = pause or self.stopping.wait
        self.sqlite = make_url(url).get_backend_name() == "sqlite"
        self.engine = _sqlite(url) if self.sqlite else _mysql(url, connections, timeout_s, autocommit=False)
        self._auto = self.engine.execution_options(reads=True) if self.sqlite else _mysql(url, connections, timeout_s, autocommit=True)
        self._sockets = Sockets()
        if not self.sqlite:
            self._sockets.watch(self.engine)
            self._sockets.watch(self._auto)
            if reads_s is not None:
                event.listen(self.engine, "connect", _ending_after(reads_s))
                event.listen(self._auto, "connect", _ending_after(reads_s))

    def run(self, work: Callable[[Connection], Result], *, tries: int | None = None) -> Result:
        """Return what `work` returns, in one transaction; run it again on every error that may pass, `tries` times (None: until stopped).

        Raises Stopped when the program leaves, and the last database error when the tries are used up or it cannot pass.
        """
        return self._again(lambda: self._once(self.engine.begin(), work), tries)

    def auto(self, work: Callable[[Connection], Result], *, tries: int | None = None) -> Result:
        """Do the same with each statement committed by itself; on SQLite for reading only."""
        return self._again(lambda: self._alone(work), tries)

    def answers(self) -> bool:
        """Return whether the server answers on a fresh connection."""
        try:
            self._auto.dispose()
            self._alone(lambda connection: connection.exec_driver_sql("SELECT 1").scalar())
        except SQLAlchemyError:
            return False
        return True

    @property
    def where(self) -> str:
        """Return the address, without the password."""
        return self.engine.url.render_as_string(hide_password=True)

    def wait_for_answer(self) -> None:
        """Return when the server answers; raise Stopped when the program leaves first."""
        count = 0
        while self.stopping.is_set() or not self.answers():
            count += 1
            self.rest(count)

    def reach(self) -> None:
        """Raise UnreachableError when the server does not answer, UnsafeStateError when it does not take what has to be written.

        It would end the connection each time, as if it were lost, and the statement would be tried for ever.
        """
        question = f"SELECT {LEAST_PACKET_BYTES}" if self.sqlite else "SELECT @@max_allowed_packet"
        try:
            packet = int(self._alone(lambda connection: connection.exec_driver_sql(question).scalar_one()))
        except SQLAlchemyError as error:
            said = getattr(error, "orig", error)
            how = "does not let us in" if code(error) in _REFUSED else "does not answer"
            setting = "DOCLLM_DATA_DIR" if self.sqlite else "DOCLLM_DATABASE_URL"
            raise UnreachableError(f"the database {self.where} {how}: {said}; check {setting}") from None
        if packet < LEAST_PACKET_BYTES:
            raise UnsafeStateError(
                f"the database {self.where} takes {packet} bytes in a statement, and a task may need {LEAST_PACKET_BYTES}; "
                "set max_allowed_packet=64M on the server"
            )

    def abandon(self) -> None:
        """End every wait, that for a server which does not answer too; what was under way may have committed."""
        self.stopping.set()
        self._sockets.cut()

    def close(self) -> None:
        """End every wait, close every connection."""
        self.stopping.set()
        self.engine.dispose()
        self._auto.dispose()

    def _alone(self, work: Callable[[Connection], Result]) -> Result:
        return self._once(self._auto.connect(), work)

    def _once(self, opened: AbstractContextManager[Connection], work: Callable[[Connection], Result]) -> Result:
        with opened as connection:
            try:
                return work(connection)
            except DBAPIError as error:
                if code(error) in READ_ONLY:
                    connection.invalidate()
                raise

    def _again(self, once: Callable[[], Result], tries: int | None) -> Result:
        count = 0
        while True:
            try:
                return once()
            except SQLAlchemyError as error:
                count += 1
                if not passing(error) or count == tries or (self._reads_only and too_long(error)):
                    raise
                if count == _TOLD_AFTER:
                    log.warning("waiting for the database %s: %s", self.where, getattr(error, "orig", None) or error)
            self.rest(count)

    def rest(self, count: int) -> None:
        """Pause before the next try, longer after each of `count` failures; raise Stopped when the program leaves."""
        if self.stopping.is_set():
            raise Stopped
        longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(count, 10))
        self._pause(longest * random.uniform(0.5, 1))  # noqa: S311 - spreads retries, protects nothing


def _mysql(url: str, connections: int, timeout_s: int, *, autocommit: bool) -> Engine:
    engine = create_engine(
        url,
        isolation_level="AUTOCOMMIT" if autocommit else "READ COMMITTED",
        pool_size=connections,
        max_overflow=0,
        pool_timeout=30,
        # Every round trip is paid by every claim: `auto` learns of a dead connection from its first statement, and tries again;
        # a transaction always ends before its connection is returned, so that there is nothing to reset.
        pool_pre_ping=not autocommit,
        pool_reset_on_return=None,
        skip_autocommit_rollback=autocommit,
        pool_recycle=900,
        hide_parameters=True,
        # No driver has a time limit by default: a frozen server would hold the thread for ever.
        connect_args={
            "connect_timeout": min(5, timeout_s),
            "read_timeout": timeout_s,
            "write_timeout": timeout_s,
            "sql_mode": _SQL_MODE,
        },
    )
    event.listen(engine, "do_connect", _connect_mysql)
    event.listen(engine, "connect", _prepare_mysql)
    return engine


class Sockets:
    """The connections of a driver that can only be interrupted from below: it waits on its socket."""

    def __init__(self) -> None:
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()

    def watch(self, engine: Engine) -> None:
        """Note every connection that the engine opens."""
        event.listen(engine, "connect", self._opened)

    def cut(self) -> None:
        """Let every call that waits for an answer fail."""
        with self._lock:
            sockets = [connection._sock for connection in self._connections]  # noqa: SLF001 - PyMySQL has no name for it
        for one in sockets:
            if one is not None:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _opened(self, dbapi: Any, _record: object) -> None:
        with self._lock:
            self._connections.add(dbapi)


def _connect_mysql(dialect: Any, _record: object, arguments: Any, settings: Any) -> Any:
    """A certificate that cannot be read is a way to the server that is gone: the file may just be exchanged.

    A server that takes connections and does not greet is frozen; who waits for its greeting cannot be interrupted.
    """
    try:
        connection = dialect.connect(*arguments, **settings | {"read_timeout": settings["connect_timeout"]})
    except OSError as error:
        raise dialect.loaded_dbapi.OperationalError(NO_WAY, f"{error}; look at the files that the ssl_ options name") from None
    except UnicodeError:  # its text quotes the password
        raise ConfigError("the database's address holds a host, name or password that none can be; check DOCLLM_DATABASE_URL") from None
    connection._read_timeout = settings["read_timeout"]  # noqa: SLF001 - PyMySQL has one limit for greeting and statements
    return connection


def _is_mariadb(cursor: Any) -> bool:
    cursor.execute("SELECT VERSION()")
    return "mariadb" in cursor.fetchone()[0].lower()


def _ending_after(reads_s: int) -> Callable[[Any, object], None]:
    def prepare(dbapi: Any, _record: object) -> None:
        with closing(dbapi.cursor()) as cursor:
            cursor.execute(f"SET max_statement_time={reads_s}" if _is_mariadb(cursor) else f"SET max_execution_time={1000 * reads_s}")

    return prepare


def _prepare_mysql(dbapi: Any, _record: object) -> None:
    cursor = dbapi.cursor()
    mariadb = _is_mariadb(cursor)
    cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    cursor.execute(
        "SET time_zone='+00:00', innodb_lock_wait_timeout=5, wait_timeout=30" + (", idle_transaction_timeout=15" if mariadb else "")
    )
    cursor.close()


def _sqlite(url: str) -> Engine:
    path = make_url(url).database
    if not path:
        raise ConfigError("an SQLite ledger needs a file; set DOCLLM_DATA_DIR")
    engine = create_engine(url, hide_parameters=True, connect_args={"timeout": 30, "check_same_thread": False})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(dbapi: Any, _record: object) -> None:
    dbapi.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=30000"):
        dbapi.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # A deferred transaction that reads and then writes fails under a second writer, whatever the timeout.
    connection.exec_driver_sql("BEGIN" if connection.get_execution_options().get("reads") else "BEGIN IMMEDIATE")
