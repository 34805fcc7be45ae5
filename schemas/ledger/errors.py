"""Classifies database errors: which may pass, and which say something about a row."""

import re
import sqlite3

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

# MySQL and MariaDB error numbers.
#
# The whole transaction is run again after a deadlock, a lock wait that timed out, a statement that
# an operator ended, a commit that another node of a cluster overtook, a table that was just
# altered, or a server without threads or memory for more.
CONFLICTS = frozenset(
    {1213, 1205, 1020, 1180, 1317, 3100, 3101, 1412, 1637, 1689, 1037, 1038, 1041, 1135, 3032}
)
DEADLOCK = 1213
LOCK_WAIT = 1205
# The server ended a statement that took longer than the server, or a read-only program, allows.
TOO_LONG = frozenset({1969, 3024})
# The connection was lost in the middle of a statement, which may be the cause.
LOST = frozenset({2006, 2013, 2014, 2026, 2055, 1053, 1158, 1159, 1160, 1161, 1927, 4031})
# The server accepted no connection: it is not running, all connections are in use, a limit of this
# host or user is reached, a cluster node is not ready, a proxy has no server, a password is being
# changed or has expired, the user is locked, or the server demands TLS.
CANNOT_CONNECT = 2003
TURNED_AWAY = frozenset(
    {2002, CANNOT_CONNECT, 1040, 1045, 1047, 1129, 1203, 1226, 1698, 1820, 1862, 3118, 3159, 4151}
    | {9001}
)
# The user is known but lacks the right: to a table, a column, the server, a routine, the database.
DENIED = frozenset({1142, 1143, 1227, 1370, 1044})
# The server became read-only by a failover; another connection finds the new primary.
READ_ONLY = frozenset({1036, 1290, 1792, 1836, 1874, 1881})
# The server's settings refuse what docllm writes, whatever it is: the format of the binary log, its
# largest packet or its largest transaction, or rules of its replication. Another connection finds
# the settings of then. `docllm.schemas.ledger.server_settings` says what to set.
REFUSED_BY_SETTINGS = READ_ONLY | {1153, 1197, 1661, 1663, 1665, 1785, 1786, 1787, 3098}
# The server's disk is full. Statements that need no space still work; the others work again once
# space is freed.
FULL = frozenset({1021, 1026, 1114})
WHERE_GRANTS = "see Rights in the database in docs/how-to/kafka.md"
_DENIED_RIGHT = re.compile(r"([A-Z]++(?>(?:[ ,]++[A-Z]++)*)) command denied to user ")
LOCKED = "another program, such as a backup or a suspended agent, keeps it locked"
_SQLITE_BUSY = (
    "database is locked",
    "database table is locked",
    "disk i/o error",
    "database or disk is full",
    "unable to open database file",
)


def code(error: BaseException) -> int:
    """Return the server's error number, 0 if there is none."""
    args = getattr(getattr(error, "orig", None), "args", ())
    return args[0] if args and isinstance(args[0], int) else 0


def lost(error: BaseException) -> bool:
    """Return whether the connection was lost during a transaction, which may be the cause."""
    return code(error) in LOST or (isinstance(error, DBAPIError) and error.connection_invalidated)


def deadlocked(error: BaseException) -> bool:
    """Return whether the transaction was rolled back to end a deadlock."""
    return code(error) == DEADLOCK


def denied(error: BaseException) -> bool:
    """Return whether the database's user lacks a right."""
    return code(error) in DENIED


def refusal(error: BaseException, database: str | None) -> str:
    """Return which right the server refuses, and what to do about it.

    The message names no account: the server's text holds our address, which need not be the
    account's.
    """
    message = str(getattr(error, "orig", error).args[-1])
    right = denied_right(error)
    grant = f"run: GRANT {right} ON `{database}`.* TO ..." if right else "grant it"
    return f"refuses a right: {message}; {grant} ({WHERE_GRANTS})"


def denied_right(error: BaseException) -> str:
    """Return the missing right, such as INSERT, or an empty text if the server does not name it."""
    match = _DENIED_RIGHT.match(str(getattr(error, "orig", error).args[-1]))
    return match[1] if match else ""


def away(error: BaseException) -> bool:
    """Return whether the server is unreachable or takes nothing from any client."""
    return lost(error) or code(error) in TURNED_AWAY | REFUSED_BY_SETTINGS | FULL


def too_long(error: BaseException) -> bool:
    """Return whether the server ended a statement because it took too long."""
    return code(error) in TOO_LONG


def busy(error: BaseException) -> bool:
    """Return whether the database cannot take such a transaction now.

    The connection is refused, others hold locks, the server's settings forbid to write, or its disk
    is full.
    """
    if isinstance(getattr(error, "orig", None), sqlite3.OperationalError):
        return any(word in str(error).lower() for word in _SQLITE_BUSY)
    is_busy = code(error) in CONFLICTS | TOO_LONG | TURNED_AWAY | REFUSED_BY_SETTINGS | FULL
    return is_busy or isinstance(error, PoolTimeout)


def file_locked(error: BaseException) -> bool:
    """Return whether another program held the lock of SQLite's file for the whole wait."""
    is_sqlite = isinstance(getattr(error, "orig", None), sqlite3.OperationalError)
    return is_sqlite and "is locked" in str(error).lower()


def passing(error: BaseException) -> bool:
    """Return whether the same transaction may succeed when it is run again."""
    return lost(error) or busy(error)
