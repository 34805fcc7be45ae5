"""The database connection: engines, and transactions that are run again until they are through.

4 in 10 COMMITs that raise "connection lost" have committed: every function that is given to `run` must be safe to run twice.
"""

import logging
import random
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from schemas.clock import SystemClock
from schemas.database_errors import READ_ONLY, away, code, denied, passing, refusal, too_long
from schemas.database_mysql import Limits, Sockets, mysql_engine
from schemas.errors import ConfigError, DeniedError, UnreachableError, UnsafeStateError
from schemas.outage import Outage

# What others than adapters need to name: a transaction in progress, and any error of the database.
__all__ = ["Connection", "Database", "DatabaseError", "Stopped"]

log = logging.getLogger(__name__)

DatabaseError = SQLAlchemyError
Result = TypeVar("Result")

_REFUSED = frozenset({1044, 1045, 1049, 1698})  # user, password or database are not known there
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0
_LONG_S, _LONG_PAUSE_S = 10.0, 4.0  # an outage that lasts longer than the former is asked about more seldom
_IN_VAIN = 10  # tries, some five seconds, after which what others do in the database holds us up too
TIMEOUT_S = 30
_TOO_LONG_PAUSE_S = 10.0
# A record of 4 MiB as hexadecimal digits, in one statement with a megabyte of others.
LEAST_PACKET_BYTES = 10 << 20


class Stopped(Exception):  # noqa: N818 - it is no error: somebody asked for it
    """The program is leaving: the transaction is not tried again. It may have committed."""


class Database:
    """One database, used from a few dedicated threads. `stopping` ends the patience of every call.

    The server ends a statement before its client gives up, and it is tried again later. MySQL does
    so with SELECTs only, MariaDB with all. With `reads_s` a program reads only, and may take so
    long over it; then the error is raised. With `timeout_s=None`, for `migrate`, a statement may
    take any time.
    """

    def __init__(
        self,
        url: str,
        *,
        connections: int = 4,
        timeout_s: int | None = TIMEOUT_S,
        reads_s: int | None = None,
        pause: Callable[[float], Any] | None = None,
        outage: Outage | None = None,
    ) -> None:
        self._reads_only = reads_s is not None
        limits = Limits.of(timeout_s, reads_s)
        self.stopping = threading.Event()
        self._pause = pause or self.stopping.wait
        self.sqlite = make_url(url).get_backend_name() == "sqlite"
        self.engine = _sqlite(url) if self.sqlite else mysql_engine(url, connections, limits, autocommit=False)
        self._auto = self.engine.execution_options(reads=True) if self.sqlite else mysql_engine(url, connections, limits, autocommit=True)
        self.outage = outage or Outage(name=f"the database {self.where}", clock=SystemClock())
        self._sockets = Sockets()
        if not self.sqlite:
            self._sockets.watch(self.engine)
            self._sockets.watch(self._auto)

    def run(self, work: Callable[[Connection], Result], *, tries: int | None = None) -> Result:
        """Return what `work` returns, in one transaction; run it again on every error that may pass, `tries` times (None: until stopped).

        Raises Stopped when the program leaves, DeniedError when the database's user lacks a right,
        and the last database error when the tries are used up or it cannot pass.
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
        except SQLAlchemyError as error:
            self.outage.failed(_said(error))
            return False
        self.outage.answered()
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
            said = _said(error)
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
                result = once()
            except SQLAlchemyError as error:
                count += 1
                self.require_right(error)
                if not self._reads_only and too_long(error):
                    log.warning("%s", self._ended(error))
                if away(error) or (passing(error) and count >= _IN_VAIN):
                    self.outage.failed(_said(error))
                if not passing(error) or count == tries or (self._reads_only and too_long(error)):
                    raise
                if too_long(error):
                    self._pause(_TOO_LONG_PAUSE_S)
            else:
                self.outage.answered()
                return result
            self.rest(count)

    def require_right(self, error: SQLAlchemyError) -> None:
        """Raise DeniedError when the error says that the database's user lacks a right."""
        if denied(error):
            refused = refusal(error, self.engine.url.database)
            raise DeniedError(f"the database {self.where} {refused}") from None

    def _ended(self, error: SQLAlchemyError) -> str:
        why = "ended a statement that took too long, which is tried again"
        return f"the database {self.where} {why}: {_said(error)}"

    def rest(self, count: int) -> None:
        """Pause before the next try, longer after each of `count` failures; raise Stopped when the program leaves."""
        if self.stopping.is_set():
            raise Stopped
        most = _LONG_PAUSE_S if self.outage.lasts_s > _LONG_S else _LONGEST_PAUSE_S
        longest = min(most, _FIRST_PAUSE_S * 2 ** min(count, 10))
        self._pause(longest * random.uniform(0.5, 1))  # noqa: S311 - spreads retries, protects nothing


def _said(error: SQLAlchemyError) -> object:
    """Return what the driver says: SQLAlchemy adds the statement."""
    return getattr(error, "orig", None) or error


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
