"""The real SQL on SQLite in memory, with the database's clock replaced by the virtual one, and a row's history kept by triggers.

One connection serves all simulated programs: a transaction runs within one callback, so that nothing can come between.
"""

import sqlite3
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from sqlalchemy import Connection, StaticPool, create_engine
from sqlalchemy.exc import OperationalError

from schemas import migrations
from schemas.clock import Clock
from schemas.database import Database
from tests.simulation.weather import Weather

Result = TypeVar("Result")
_UNIX_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the database's times are UTC without a zone
_JULIAN_EPOCH = datetime(2000, 1, 1, 12)  # noqa: DTZ001 - the same
_JULIAN_EPOCH_DAY = 2451545.0

# What the checkers read of a row's life. It is written in the transaction that changes the row.
_HISTORY = """
CREATE TABLE sim_move (seq INTEGER PRIMARY KEY, at TEXT, task_id INT, old_status INT, status INT, old_owner INT, owner INT,
                       old_fence INT, fence INT, old_due TEXT, losses INT, attempt INT);
CREATE TRIGGER sim_task AFTER UPDATE ON task BEGIN
  INSERT INTO sim_move (at, task_id, old_status, status, old_owner, owner, old_fence, fence, old_due, losses, attempt)
  VALUES (strftime('%Y-%m-%d %H:%M:%f', 'now') || '000', NEW.id, OLD.status, NEW.status, OLD.owner, NEW.owner, OLD.fence, NEW.fence,
          OLD.due_at, NEW.lease_losses - OLD.lease_losses, NEW.attempt - OLD.attempt);
END;
CREATE TABLE sim_verdict (at TEXT, agent_id INT, seen_at TEXT);
CREATE TRIGGER sim_agent AFTER UPDATE OF lost_at ON agent WHEN OLD.lost_at IS NULL AND NEW.lost_at IS NOT NULL BEGIN
  INSERT INTO sim_verdict VALUES (NEW.lost_at, NEW.id, OLD.seen_at);
END;
CREATE TRIGGER sim_poison BEFORE INSERT ON task_result WHEN instr(NEW.body, CAST('poison' AS BLOB)) BEGIN
  SELECT RAISE(ABORT, 'this row cannot be written');
END;
"""


class Store:
    """One database for one run after another; each begins with an empty schema."""

    def __init__(self) -> None:
        self.utc_s: Callable[[], float] = lambda: 0.0
        engine = create_engine("sqlite://", poolclass=StaticPool, creator=self._connect, hide_parameters=True, isolation_level="AUTOCOMMIT")
        self._connection = engine.connect()
        self._empty = _migrated()

    def begin(self, utc_s: Callable[[], float]) -> None:
        """Forget everything; from now on it is `utc_s()`."""
        self.utc_s = utc_s
        self._empty.backup(self.raw)

    def transact(self, work: Callable[[Connection], Result], begin: str) -> Result:
        """Return what `work` returns, in one transaction. Opening one with SQLAlchemy would cost more than what is done in it."""
        self.raw.execute(begin)
        try:
            result = work(self._connection)
        except BaseException:
            self.raw.execute("ROLLBACK")
            raise
        self.raw.execute("COMMIT")
        return result

    def rows(self, sql: str, *values: object) -> list[Any]:
        """Return the rows of a query, beside the product."""
        return self.raw.execute(sql, values).fetchall()

    def _connect(self) -> sqlite3.Connection:
        self.raw = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self.raw.execute("PRAGMA synchronous=OFF")
        self.raw.create_function("strftime", -1, self._strftime)
        self.raw.create_function("julianday", 1, self._julianday)
        return self.raw

    def _strftime(self, form: str, _now: str, *modifiers: str) -> str:
        if form != "%Y-%m-%d %H:%M:%f":
            raise ValueError(form)
        seconds = self.utc_s() + sum(float(modifier.removesuffix(" seconds")) for modifier in modifiers)
        return stamp(seconds)

    def _julianday(self, text: str) -> float:
        if text == "now":
            return _JULIAN_EPOCH_DAY + (self.utc_s() - (_JULIAN_EPOCH - _UNIX_EPOCH).total_seconds()) / 86400
        return _julian(text)


def stamp(utc_s: float) -> str:
    """Return a time as SQLite's strftime gives it: milliseconds."""
    return (_UNIX_EPOCH + timedelta(milliseconds=round(utc_s * 1000))).isoformat(" ", "milliseconds")


def seconds(text: str) -> float:
    """Return a stored time in seconds since 1970."""
    return (datetime.fromisoformat(text) - _UNIX_EPOCH).total_seconds()


@lru_cache(maxsize=10_000)
def _julian(text: str) -> float:
    return _JULIAN_EPOCH_DAY + (datetime.fromisoformat(text) - _JULIAN_EPOCH).total_seconds() / 86400


def _migrated() -> sqlite3.Connection:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        database = Database(f"sqlite:///{path}")
        migrations.migrate(database)
        database.close()
        empty = sqlite3.connect(":memory:", isolation_level=None)
        with sqlite3.connect(path) as file:
            file.backup(empty)
        file.close()
    empty.execute("UPDATE ledger SET ledger_id=?", (bytes(range(16)),))
    empty.executescript(_HISTORY)
    return empty


class AwayError(BaseException):
    """A transaction waits for a server that is away: its lane runs the call again later. Nothing of the product may catch it."""


class SimDatabase(Database):
    """The product's transactions, on the store; what goes wrong with them is the weather's."""

    def __init__(self, store: Store, weather: Weather, clock: Clock) -> None:
        self.stopping = threading.Event()
        self.sqlite = True
        self._store = store
        self._weather = weather
        self._clock = clock

    @property
    def away_s(self) -> float:
        """Return for how long the server does not answer yet."""
        return self._weather.away_s("database", self._clock.now_s())

    def answers(self) -> bool:
        """Return whether the server answers."""
        return not self.away_s

    def rest(self, count: int) -> None:
        """Try again at once, or leave it to the lane when the server is away."""
        if self.away_s:
            raise AwayError

    def close(self) -> None:
        """Leave the store to the others."""

    def run(self, work: Callable[[Connection], Result], *, tries: int | None = None) -> Result:
        """Return what `work` returns, in one transaction."""
        return self._again(lambda: self._struck(work, "BEGIN IMMEDIATE"), tries)

    def auto(self, work: Callable[[Connection], Result], *, tries: int | None = None) -> Result:
        """Return what `work` reads."""
        return self._again(lambda: self._struck(work, "BEGIN"), tries)

    def _struck(self, work: Callable[[Connection], Result], begin: str) -> Result:
        if self.away_s:
            raise connection_lost()
        if self._weather.strikes("busy"):
            raise OperationalError("BEGIN", {}, sqlite3.OperationalError("database is locked"))
        result = self._store.transact(work, begin)
        if self._weather.strikes("lost_ack"):
            raise connection_lost()
        return result


def connection_lost() -> OperationalError:
    """Return the error of a connection that broke."""
    return OperationalError("COMMIT", {}, sqlite3.OperationalError("server has gone away"), connection_invalidated=True)
