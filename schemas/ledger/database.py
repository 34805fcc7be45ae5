"""The database connection: engines, and transactions that are retried until they succeed.

When a COMMIT raises "connection lost", the transaction has committed in 4 of 10 cases. So every
function that is passed to `run` must be safe to run twice.
"""

import itertools
import logging
import random
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from docllm.schemas.codes import Code
from docllm.schemas.errors import ConfigError, DeniedError, UnreachableError, UnsafeStateError
from docllm.schemas.ledger.errors import (
    LOCKED,
    REFUSED_BY_SETTINGS,
    away,
    code,
    denied,
    file_locked,
    passing,
    refusal,
    too_long,
)
from docllm.schemas.ledger.mysql_engine import Sockets, mysql_engine
from docllm.schemas.ledger.server_settings import cause
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.outage import Outage

# Names for modules that must not import SQLAlchemy: a transaction in progress, and any database
# error.
__all__ = ["Connection", "Database", "DatabaseError", "Stopped"]

log = logging.getLogger(__name__)

DatabaseError = SQLAlchemyError
T = TypeVar("T")

# The server does not know the user, the password or the database.
_REFUSED = frozenset({1044, 1045, 1049, 1698})
# Pauses between tries: they grow to the longest one, and further during a long outage.
_FIRST_PAUSE_S = 0.02
_MAX_PAUSE_S = 1.0
_LONG_OUTAGE_S = 10.0
_LONG_OUTAGE_PAUSE_S = 4.0
# After this many tries (about five seconds), conflicts with other transactions also count as an
# outage.
_CONFLICTS_UNTIL_OUTAGE = 10
TIMEOUT_S = 30
# One wait for SQLite's lock, which nothing interrupts: a program that is asked to stop waits for
# its end. `run` begins the next one.
_LOCK_STEP_S = 2
_LOCK_TRIES = 5  # of a program that opens the file
_TOO_LONG_PAUSE_S = 10.0
# A record of 4 MiB as hexadecimal digits, in one statement with a megabyte of others.
MIN_PACKET_BYTES = 10 << 20


class Stopped(Exception):  # noqa: N818 - not an error: somebody asked for it
    """The program is leaving, so the transaction is not retried. It may have committed."""


class Database:
    """One database, used from a few dedicated threads. `stopping` ends the waits of every call.

    The server ends a statement before its client gives up, and the statement is retried later.
    MySQL ends only SELECTs this way, MariaDB all statements. With `reads_s` a program only reads,
    each read may take that long, and then the error is raised. With `timeout_s=None`, for
    `migrate`, a statement may take any time. `tries` bounds the tries of each transaction that
    names no bound itself; with None there is none.
    """

    def __init__(
        self,
        url: str,
        *,
        connections: int = 4,
        timeout_s: int | None = TIMEOUT_S,
        reads_s: int | None = None,
        tries: int | None = None,
        pause: Callable[[float], Any] | None = None,
        outage: Outage | None = None,
    ) -> None:
        self._reads_only = reads_s is not None
        self._tries = tries
        server = partial(mysql_engine, url, connections, timeout_s=timeout_s, reads_s=reads_s)
        self.stopping = threading.Event()
        self._pause = pause or self.stopping.wait
        self.sqlite = make_url(url).get_backend_name() == "sqlite"
        self.engine = _sqlite(url) if self.sqlite else server(autocommit=False)
        self._auto = (
            self.engine.execution_options(reads=True) if self.sqlite else server(autocommit=True)
        )
        self.outage = outage or Outage(name=f"the database {self.where}", clock=SystemClock())
        self._sockets = Sockets()
        if not self.sqlite:
            self._sockets.watch(self.engine)
            self._sockets.watch(self._auto)

    def run(self, work: Callable[[Connection], T], *, tries: int | None = None) -> T:
        """Return the result of `work`, run in one transaction.

        The transaction is retried on every error that may pass, `tries` times (None: as often as
        the database's `tries` says, by default until the program stops). Raises Stopped if the
        program leaves, DeniedError if the database's user lacks a right, and the last database
        error if the tries are used up or the error cannot pass.
        """
        return self._retry(lambda: self._try_once(self.engine.begin(), work), tries)

    def run_singly(self, work: Callable[[Connection], T], *, tries: int | None = None) -> T:
        """Run `work` as `run` does, but commit each statement by itself.

        On SQLite, use it for reads only.
        """
        return self._retry(lambda: self._autocommit(work), tries)

    def answers(self) -> bool:
        """Return whether the server answers on a fresh connection."""
        try:
            self._auto.dispose()
            self._autocommit(lambda connection: connection.exec_driver_sql("SELECT 1").scalar())
        except SQLAlchemyError as error:
            self.outage.failed(_driver_error(error))
            return False
        self.outage.answered()
        return True

    @property
    def where(self) -> str:
        """The address, without the password."""
        return self.engine.url.render_as_string(hide_password=True)

    def wait_for_answer(self) -> None:
        """Return once the server answers. Raises Stopped if the program leaves first."""
        for count in itertools.count(1):
            if not self.stopping.is_set() and self.answers():
                return
            self.pause(count)  # raises Stopped if the program leaves

    def require_usable(self) -> None:
        """Check that the server answers and takes statements of the size that docllm needs.

        Raises UnreachableError if it does not answer or refuses the login, and UnsafeStateError if
        its packet limit is too low. Such a server would end the connection at each large statement,
        as if it were lost, and the statement would be retried for ever.
        """
        question = f"SELECT {MIN_PACKET_BYTES}" if self.sqlite else "SELECT @@max_allowed_packet"
        try:
            packet = self._retry(
                lambda: self._autocommit(
                    lambda connection: int(connection.exec_driver_sql(question).scalar_one())
                ),
                _LOCK_TRIES if self.sqlite else 1,
            )
        except SQLAlchemyError as error:
            self.require_settings(error)
            is_refused = code(error) in _REFUSED
            problem = "refuses the connection" if is_refused else "does not answer"
            setting = "DOCLLM_DATA_DIR" if self.sqlite else "DOCLLM_DATABASE_URL"
            raise UnreachableError(
                f"the database {self.where} {problem}: {_driver_error(error)}; check {setting}",
                may_pass=passing(error) and not is_refused,
            ) from None
        if packet < MIN_PACKET_BYTES:
            raise UnsafeStateError(
                f"the database {self.where} accepts at most {packet} bytes in a statement, "
                f"but a task may need {MIN_PACKET_BYTES}; "
                "set max_allowed_packet=64M on the server"
            )

    def abandon(self) -> None:
        """End every wait, even a wait for a server that does not answer.

        Transactions in progress may have committed.
        """
        self.stopping.set()
        self._sockets.cut()

    def close(self) -> None:
        """End every wait and close every connection."""
        self.stopping.set()
        self.engine.dispose()
        self._auto.dispose()

    def _autocommit(self, work: Callable[[Connection], T]) -> T:
        return self._try_once(self._auto.connect(), work)

    def _try_once(
        self, opened: AbstractContextManager[Connection], work: Callable[[Connection], T]
    ) -> T:
        with opened as connection:
            try:
                return work(connection)
            except DBAPIError as error:
                if code(error) in REFUSED_BY_SETTINGS:
                    connection.invalidate()
                raise

    def _retry(self, once: Callable[[], T], tries: int | None) -> T:
        count, tries = 0, tries or self._tries
        while True:
            try:
                result = once()
            except SQLAlchemyError as error:
                count += 1
                self.require_right(error)
                if not self._reads_only and too_long(error):
                    log.warning(
                        "%s", self._too_long_message(error), extra={"code": Code.DATABASE_SLOW}
                    )
                if file_locked(error):
                    self.outage.failed(f"{_driver_error(error)}: {LOCKED}", after_s=_LOCK_STEP_S)
                elif away(error) or (passing(error) and count >= _CONFLICTS_UNTIL_OUTAGE):
                    refused = cause(error)
                    told = f"{refused}: {_driver_error(error)}" if refused else _driver_error(error)
                    self.outage.failed(told)
                if not passing(error) or count == tries or (self._reads_only and too_long(error)):
                    raise
                if too_long(error):
                    self._pause(_TOO_LONG_PAUSE_S)
            else:
                self.outage.answered()
                return result
            self.pause(count)

    def require_right(self, error: SQLAlchemyError) -> None:
        """Raise DeniedError if the error means that the database's user lacks a right."""
        if denied(error):
            refused = refusal(error, self.engine.url.database)
            raise DeniedError(f"the database {self.where} {refused}") from None

    def require_settings(self, error: SQLAlchemyError) -> None:
        """Raise UnsafeStateError if the error comes from a setting of the server."""
        if refused := cause(error):
            raise UnsafeStateError(
                f"the database {self.where} cannot be used: {refused} ({_driver_error(error)})"
            ) from None

    def _too_long_message(self, error: SQLAlchemyError) -> str:
        what_happened = "ended a statement that took too long; docllm tries it again"
        return f"the database {self.where} {what_happened}: {_driver_error(error)}"

    def pause(self, count: int) -> None:
        """Pause before the next try, longer after each of `count` failures.

        Raises Stopped if the program leaves.
        """
        if self.stopping.is_set():
            raise Stopped
        is_long = self.outage.lasts_s > _LONG_OUTAGE_S
        limit_s = _LONG_OUTAGE_PAUSE_S if is_long else _MAX_PAUSE_S
        longest_s = min(limit_s, _FIRST_PAUSE_S * 2 ** min(count, 10))
        # The jitter spreads retries; it protects nothing.
        self._pause(longest_s * random.uniform(0.5, 1))  # noqa: S311


def _driver_error(error: SQLAlchemyError) -> object:
    """Return the driver's own error, because SQLAlchemy adds the statement."""
    return getattr(error, "orig", None) or error


def _sqlite(url: str) -> Engine:
    path = make_url(url).database
    if not path:
        raise ConfigError("an SQLite ledger needs a file; set DOCLLM_DATA_DIR")
    engine = create_engine(
        url,
        hide_parameters=True,
        connect_args={"timeout": _LOCK_STEP_S, "check_same_thread": False},
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(dbapi: Any, _record: object) -> None:
    dbapi.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=FULL"):
        dbapi.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # A deferred transaction that reads and then writes fails under a second writer, whatever the
    # timeout.
    reads = connection.get_execution_options().get("reads")
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
