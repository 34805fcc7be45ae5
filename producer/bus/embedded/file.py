"""The bus file: how it is opened, its schema, its transactions.

The module knows nothing of what the rows mean.

Writing begins with BEGIN IMMEDIATE: a deferred transaction that reads and then writes fails under a
second writer, whatever the timeout.

auto_vacuum is off. Later records reuse the pages of deleted records, so the file stays as large as
it was with the largest backlog, and no commit has to move pages.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from docllm.producer.bus.embedded.mount import refuse_network
from docllm.producer.text.private_files import make_file, make_folder
from docllm.schemas.errors import UnreachableError, UnsafeStateError
from docllm.schemas.runtime.clock import Clock

T = TypeVar("T")
VERSION = 1
# How long others may hold the file's lock before the file counts as a server that does not answer.
# On a busy machine they hold it for seconds without a fault: SQLite gives the lock to any waiter.
# One try waits _BUSY_S. The last one may begin at LOCKED_S, so a call returns within the 20 s that
# `Publisher.publish` may take.
LOCKED_S = 14.0
_BUSY_S = 5.0
# A partition's id is never reused, so a topic that is made again has no records of the former one,
# and no commits. A record's place is its partition's id << 40 | its offset. This is one integer,
# and a partition's records lie side by side.
_SCHEMA = """
CREATE TABLE cluster (id TEXT NOT NULL);
INSERT INTO cluster VALUES (lower(hex(randomblob(16))));
CREATE TABLE topic (
    name TEXT PRIMARY KEY, topic_id TEXT NOT NULL UNIQUE, partitions INTEGER NOT NULL,
    settings TEXT NOT NULL);
CREATE TABLE partition (
    id INTEGER PRIMARY KEY AUTOINCREMENT, topic_id TEXT NOT NULL, number INTEGER NOT NULL,
    low INTEGER NOT NULL DEFAULT 0, high INTEGER NOT NULL DEFAULT 0, UNIQUE (topic_id, number));
CREATE TABLE record (
    place INTEGER PRIMARY KEY, timestamp_ms INTEGER NOT NULL, key BLOB, value BLOB,
    headers BLOB NOT NULL);
CREATE TABLE member (id TEXT PRIMARY KEY, group_id TEXT NOT NULL, seen_s REAL NOT NULL);
CREATE TABLE subscription (
    member_id TEXT NOT NULL, topic_id TEXT NOT NULL,
    PRIMARY KEY (member_id, topic_id)) WITHOUT ROWID;
CREATE TABLE ownership (
    group_id TEXT NOT NULL, partition_id INTEGER NOT NULL, owner TEXT, heir TEXT,
    PRIMARY KEY (group_id, partition_id)) WITHOUT ROWID;
CREATE TABLE committed (
    group_id TEXT NOT NULL, partition_id INTEGER NOT NULL, "offset" INTEGER NOT NULL,
    PRIMARY KEY (group_id, partition_id)) WITHOUT ROWID;
"""


def is_locked(error: Exception) -> bool:
    """Return whether other writers held the file's lock for the whole wait."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def until_unlocked(call: Callable[[], T], *, clock: Clock, until_s: float) -> T:
    """Return the result of `call`; while the file is locked, try again until `until_s`."""
    while True:
        try:
            return call()
        except sqlite3.OperationalError as error:
            if not is_locked(error) or clock.now_s() > until_s:
                raise


class BusFile:
    """One connection to the bus, for one thread at a time.

    Raises ConfigError on a network file system, UnreachableError when the file cannot be opened,
    and UnsafeStateError when another version of docllm made the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            make_folder(path.parent)
            refuse_network(path.parent)
            make_file(path)
            with ExitStack() as opened:
                self._db = sqlite3.connect(
                    path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
                )
                opened.callback(self._db.close)
                self._prepare()
                opened.pop_all()
        except (OSError, sqlite3.Error) as error:
            raise UnreachableError(
                f"the bus file {path} cannot be opened: {error}; "
                "check the folder, its rights and the disk"
            ) from error

    def _prepare(self) -> None:
        for pragma in ("journal_mode=WAL", "synchronous=FULL", f"journal_size_limit={64 << 20}"):
            self._db.execute(f"PRAGMA {pragma}")
        if self._version() == 0:
            self._create()
        if self._version() != VERSION:
            raise UnsafeStateError(
                f"the bus file {self.path} has version {self._version()}, "
                f"this docllm uses {VERSION}; use the docllm that made it"
            )

    def _version(self) -> int:
        return int(self.one("PRAGMA user_version")[0])

    def _create(self) -> None:
        with self.write():
            if self._version() == 0:
                for statement in _SCHEMA.split(";\n"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version={VERSION}")

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Run a block as one durable transaction; any exception rolls it back."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Run a block of reads that all see the same state."""
        self._db.execute("BEGIN")
        try:
            yield self._db
        finally:
            self._db.execute("ROLLBACK")

    def all(self, sql: str, args: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return every row of a query; leave no cursor open that would hold back the WAL."""
        return self._db.execute(sql, args).fetchall()

    def one(self, sql: str, args: Sequence[Any] = ()) -> tuple[Any, ...]:
        """Return the only row of a query."""
        row: tuple[Any, ...] = self._db.execute(sql, args).fetchone()
        return row

    def each(self, sql: str, args: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query one by one; close the query when the caller stops iterating."""
        cursor = self._db.execute(sql, args)
        try:
            yield from cursor
        finally:
            cursor.close()

    def changes(self) -> int:
        """Return a number that changes whenever another connection commits."""
        return int(self.one("PRAGMA data_version")[0])

    def close(self) -> None:
        """Close the connection."""
        self._db.close()
