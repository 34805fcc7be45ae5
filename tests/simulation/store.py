"""The real SQL on SQLite in memory, with virtual time, and a history of rows by triggers.

The database's clock is replaced by the virtual one. One connection serves all simulated programs: a
transaction runs within one callback, so nothing can come between.
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

from docllm.schemas.ledger import migrations
from docllm.schemas.ledger.database import Database
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.runtime.outage import Outage
from tests.invariants.counted import COLUMNS
from tests.simulation import exported
from tests.simulation.connection import QuickConnection
from tests.simulation.weather import Weather

Result = TypeVar("Result")
_UNIX_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the database's times are UTC without a zone
_JULIAN_EPOCH = datetime(2000, 1, 1, 12)  # noqa: DTZ001 - the same
_JULIAN_EPOCH_DAY = 2451545.0
TURN = 10_000  # the events of one transaction have numbers between two multiples of this

# The history of rows that the checkers read. It is written in the transaction that changes the row;
# `sim_turn()` numbers the events.
_NOW = "strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'"
_HISTORY = f"""
CREATE TABLE sim_move (
  turn INTEGER PRIMARY KEY, at TEXT, clock_s REAL, task_id INT, old_status INT, status INT,
  old_owner INT, owner INT, old_fence INT, fence INT, old_due TEXT,
  losses INT, attempts INT, replays INT);
CREATE TRIGGER sim_new AFTER INSERT ON task BEGIN
  INSERT INTO sim_move VALUES (
    sim_turn(), {_NOW}, sim_clock(), NEW.id, NULL, NEW.status,
    0, NEW.owner, NEW.fence, NEW.fence, NEW.due_at, 0, 0, 0);
END;
CREATE TRIGGER sim_task AFTER UPDATE ON task BEGIN
  INSERT INTO sim_move VALUES (
    sim_turn(), {_NOW}, sim_clock(), NEW.id, OLD.status, NEW.status,
    OLD.owner, NEW.owner, OLD.fence, NEW.fence, OLD.due_at,
    NEW.lease_losses - OLD.lease_losses, NEW.attempt - OLD.attempt, NEW.replays - OLD.replays);
END;
CREATE TABLE sim_lost (turn INT, clock_s REAL, agent_id INT, lost_at TEXT, seen_at TEXT);
CREATE TRIGGER sim_lost AFTER UPDATE OF lost_at ON agent
WHEN OLD.lost_at IS NULL AND NEW.lost_at IS NOT NULL BEGIN
  INSERT INTO sim_lost VALUES (sim_turn(), sim_clock(), NEW.id, NEW.lost_at, OLD.seen_at);
END;
CREATE TRIGGER sim_stopped AFTER UPDATE OF stopped_at ON agent
WHEN OLD.stopped_at IS NULL AND NEW.stopped_at IS NOT NULL BEGIN
  INSERT INTO sim_lost VALUES (sim_turn(), sim_clock(), NEW.id, NULL, OLD.seen_at);
END;
CREATE TABLE sim_order (turn INT, id INT, destination TEXT, items BLOB);
CREATE TRIGGER sim_placed AFTER INSERT ON outbox BEGIN
  INSERT INTO sim_order VALUES (sim_turn(), NEW.id, NEW.destination, NEW.items);
END;
CREATE TRIGGER sim_shrunk AFTER UPDATE OF items ON outbox BEGIN
  INSERT INTO sim_order VALUES (sim_turn(), NEW.id, NEW.destination, NEW.items);
END;
CREATE TRIGGER sim_sent AFTER DELETE ON outbox BEGIN
  INSERT INTO sim_order VALUES (sim_turn(), OLD.id, OLD.destination, x'');
END;
CREATE TABLE sim_count (turn INT, at TEXT, {", ".join(COLUMNS)});
CREATE TRIGGER sim_counted AFTER INSERT ON tally BEGIN
  INSERT INTO sim_count VALUES (
    sim_turn(), NEW.created_at, {", ".join(f"NEW.{name}" for name in COLUMNS)});
END;
CREATE TRIGGER sim_rolled_up AFTER DELETE ON tally BEGIN
  SELECT sim_look();
END;
CREATE TRIGGER sim_taken_back AFTER INSERT ON tally WHEN NEW.delta < 0 BEGIN
  SELECT sim_look();
END;
CREATE TABLE sim_guard (
  turn INT, id INT, batch_id INT, type TEXT, route TEXT, cause TEXT, raised INT);
CREATE TRIGGER sim_guarded AFTER UPDATE OF opened_at ON guard
WHEN (OLD.opened_at IS NULL) <> (NEW.opened_at IS NULL) BEGIN
  INSERT INTO sim_guard VALUES (
    sim_turn(), NEW.id, NEW.batch_id, NEW.type, NEW.route, NEW.cause, NEW.opened_at IS NULL);
END;
CREATE TABLE sim_look (turn INT, guard_id INT);
CREATE TRIGGER sim_looked AFTER INSERT ON guard_look BEGIN
  INSERT INTO sim_look VALUES (sim_turn(), NEW.guard_id);
END;
CREATE TABLE sim_cancel (turn INT, batch_id INT, cancelled INT);
CREATE TRIGGER sim_cancelled AFTER UPDATE OF cancelled_at ON batch BEGIN
  INSERT INTO sim_cancel VALUES (sim_turn(), NEW.id, NEW.cancelled_at IS NOT NULL);
END;
CREATE TABLE sim_kept (turn INT, topic_id TEXT, topic TEXT, part INT, record_offset INT);
CREATE TRIGGER sim_quarantined AFTER INSERT ON quarantine BEGIN
  INSERT INTO sim_kept VALUES (sim_turn(), NEW.topic_id, NEW.topic, NEW.part, NEW.record_offset);
END;
CREATE TRIGGER sim_poison BEFORE INSERT ON task_result
WHEN instr(NEW.body, CAST('poison' AS BLOB)) BEGIN
  SELECT RAISE(ABORT, 'this row cannot be written');
END;
"""  # noqa: S608 - constants only


class Store:
    """One database for one run after another; each run begins with an empty schema."""

    def __init__(self) -> None:
        self.utc_s: Callable[[], float] = lambda: 0.0
        self.clock_s: Callable[[], float] = lambda: 0.0
        self._turn = 0
        self._group = ""
        self._looks = False  # whether the sums are to be read after this transaction
        self.misread: list[str] = []
        engine = create_engine(
            "sqlite://",
            poolclass=StaticPool,
            creator=self._connect,
            hide_parameters=True,
            isolation_level="AUTOCOMMIT",
        )
        self.connection = QuickConnection(engine)
        self._empty = _migrated()

    def begin(
        self, utc_s: Callable[[], float], clock_s: Callable[[], float], group: str = ""
    ) -> None:
        """Begin a new run; `utc_s` is the database's time, and `clock_s` the run's.

        The sums of `group` are compared with the history after each replay and each compaction.

        Everything from earlier runs is forgotten.
        """
        self.utc_s, self.clock_s, self._turn = utc_s, clock_s, 0
        self._looks, self.misread, self._group = False, [], group
        self._empty.backup(self.raw)

    def transact(self, work: Callable[[Connection], Result], begin: str) -> Result:
        """Return the result of `work`, in one transaction if it begins with a statement.

        To open a transaction with SQLAlchemy would cost more than its work.
        """
        self.turn()
        if not begin:
            return work(self.connection)
        self.raw.execute(begin)
        try:
            result = work(self.connection)
        except BaseException:
            self.raw.execute("ROLLBACK")
            raise
        self.raw.execute("COMMIT")
        if self._looks:
            self._looks = False
            self.misread += exported.misread(self.connection, self.rows, self._group)
        return result

    def turn(self) -> int:
        """Return an event number that is after all past ones and before all future ones."""
        self._turn = (self._turn // TURN + 1) * TURN
        return self._turn

    def rows(self, sql: str, *values: object) -> list[Any]:
        """Return the rows of a checker's own query."""
        return self.raw.execute(sql, values).fetchall()

    def _connect(self) -> sqlite3.Connection:
        self.raw = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self.raw.execute("PRAGMA synchronous=OFF")
        # As SQLite's own, they are called once in a statement and not for each row.
        self.raw.create_function("strftime", -1, self._strftime, deterministic=True)
        self.raw.create_function("julianday", 1, self._julianday, deterministic=True)
        self.raw.create_function("sim_turn", 0, self._count)
        self.raw.create_function("sim_clock", 0, self._clock)
        self.raw.create_function("sim_look", 0, self._look)
        return self.raw

    def _clock(self) -> float:
        return self.clock_s()

    def _count(self) -> int:
        self._turn += 1
        return self._turn

    def _look(self) -> None:
        self._looks = True

    def _strftime(self, form: str, _now: str, *modifiers: str) -> str:
        if form == "%Y-%m-%d %H:%M:00.000000":
            return f"{stamp(self.utc_s())[: len('2026-01-01 12:00')]}:00.000000"
        if form != "%Y-%m-%d %H:%M:%f":
            raise ValueError(form)
        seconds = self.utc_s() + sum(
            float(modifier.removesuffix(" seconds")) for modifier in modifiers
        )
        return stamp(seconds)

    def _julianday(self, text: str | None) -> float | None:
        if text is None:
            return None
        if text == "now":
            return (
                _JULIAN_EPOCH_DAY
                + (self.utc_s() - (_JULIAN_EPOCH - _UNIX_EPOCH).total_seconds()) / 86400
            )
        return _julian(text)


@lru_cache(maxsize=1000)
def stamp(utc_s: float) -> str:
    """Return a time in the form of SQLite's strftime: milliseconds."""
    return (_UNIX_EPOCH + timedelta(milliseconds=round(utc_s * 1000))).isoformat(
        " ", "milliseconds"
    )


@lru_cache(maxsize=10_000)
def seconds(text: str) -> float:
    """Return a stored time in seconds since 1970."""
    return (datetime.fromisoformat(text) - _UNIX_EPOCH).total_seconds()


@lru_cache(maxsize=10_000)
def _julian(text: str) -> float:
    return (
        _JULIAN_EPOCH_DAY + (datetime.fromisoformat(text) - _JULIAN_EPOCH).total_seconds() / 86400
    )


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
    """A transaction waits for a server that is away; its executor runs the call again later.

    No code of the product may catch this.
    """


class SimDatabase(Database):
    """The product's transactions on the store; the weather decides which go wrong."""

    def __init__(
        self, store: Store, weather: Weather, clock: Clock, *, sqlite: bool = True
    ) -> None:
        self.stopping = threading.Event()
        self._reads_only = False
        self._tries = None
        # Otherwise a sequence that is not one transaction on a server is none here either.
        self.sqlite = sqlite
        self._store = store
        self._weather = weather
        self._clock = clock
        self.outage = Outage(name="the database", clock=clock)

    @property
    def away_s(self) -> float:
        """Return for how long the server does not answer yet."""
        return self._weather.away_s("database", self._clock.now_s())

    def answers(self) -> bool:
        """Return whether the server answers."""
        return not self.away_s

    def pause(self, count: int) -> None:
        """Retry at once, or leave the retry to the executor if the server is away."""
        if self.away_s:
            raise AwayError

    def close(self) -> None:
        """Leave the store open for the other programs."""

    def run(self, work: Callable[[Connection], Result], *, tries: int | None = None) -> Result:
        """Return the result of `work`, run in one transaction."""
        return self._retry(lambda: self._struck(work, "BEGIN IMMEDIATE"), tries)

    def run_singly(
        self, work: Callable[[Connection], Result], *, tries: int | None = None
    ) -> Result:
        """Return the result of `work`, with each statement committed by itself."""
        return self._retry(lambda: self._struck(work, ""), tries)

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
    return OperationalError(
        "COMMIT", {}, sqlite3.OperationalError("server has gone away"), connection_invalidated=True
    )
