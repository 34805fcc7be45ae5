"""What an error of the database means: whether it may pass, and whether it says anything about a row."""

import re
import sqlite3

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

# MySQL and MariaDB error numbers. A deadlock or a lock wait that ended, a statement that an operator ended, a commit that another node
# of a cluster was ahead of, a table that was just altered, a server without threads or memory for more: the whole transaction again.
CONFLICTS = frozenset({1213, 1205, 1020, 1180, 1317, 3100, 3101, 1412, 1637, 1689, 1037, 1038, 1041, 1135, 3032})
DEADLOCK, LOCK_WAIT = 1213, 1205
# The server has ended what took longer than it, or a program that reads only, allows.
TOO_LONG = frozenset({1969, 3024})
# The connection is gone in the middle of something, perhaps because of it.
LOST = frozenset({2006, 2013, 2014, 2026, 2055, 1053, 1158, 1159, 1160, 1161, 1927, 4031})
# Nobody was let in: no server there, all its connections in use, this host or user beyond its limits, a cluster's node not ready, a
# proxy with nobody behind it, a password that is just exchanged.
NO_WAY = 2003
TURNED_AWAY = frozenset({2002, NO_WAY, 1040, 1045, 1047, 1129, 1203, 1226, 1698, 9001})
# The user is known, and may not do this: to a table, a column, the server, a routine, the database.
DENIED = frozenset({1142, 1143, 1227, 1370, 1044})
# The server became read-only by a failover: another connection finds the new primary.
READ_ONLY = frozenset({1290, 1792, 1836})
# The server's disk is full: it takes what needs no room, and all again when somebody has made some.
FULL = frozenset({1021, 1026, 1114})
WHERE_GRANTS = "see Rights in the database in docs/operations.md"
_DENIED_RIGHT = re.compile(r"([A-Z][A-Z ,]*) command denied to user ")
_SQLITE_BUSY = (
    "database is locked",
    "database table is locked",
    "disk i/o error",
    "database or disk is full",
    "unable to open database file",
)


def code(error: BaseException) -> int:
    """Return the server's error number, 0 when there is none."""
    args = getattr(getattr(error, "orig", None), "args", ())
    return args[0] if args and isinstance(args[0], int) else 0


def lost(error: BaseException) -> bool:
    """Return whether the error means that the connection was lost under a transaction, which may be why."""
    return code(error) in LOST or (isinstance(error, DBAPIError) and error.connection_invalidated)


def deadlocked(error: BaseException) -> bool:
    """Return whether the transaction was undone for another one that it waited for."""
    return code(error) == DEADLOCK


def locked_out(error: BaseException) -> bool:
    """Return whether others kept a lock for longer than was waited."""
    return code(error) == LOCK_WAIT


def denied(error: BaseException) -> bool:
    """Return whether the database's user lacks a right."""
    return code(error) in DENIED


def refusal(error: BaseException, database: str | None) -> str:
    """Return what the server refuses, and what to do about it.

    No account is named: the server's text has our address, which need not be the account's.
    """
    said = str(getattr(error, "orig", error).args[-1])
    right = denied_right(error)
    grant = f"run: GRANT {right} ON `{database}`.* TO ..." if right else "grant it"
    return f"refuses a right: {said}; {grant} ({WHERE_GRANTS})"


def denied_right(error: BaseException) -> str:
    """Return the right that is missing, such as INSERT; nothing where the server does not say."""
    found = _DENIED_RIGHT.match(str(getattr(error, "orig", error).args[-1]))
    return found[1] if found else ""


def away(error: BaseException) -> bool:
    """Return whether the server is unreachable or takes nothing, whatever others do in it."""
    return lost(error) or code(error) in TURNED_AWAY | READ_ONLY | FULL


def too_long(error: BaseException) -> bool:
    """Return whether a statement was ended for the time that it took."""
    return code(error) in TOO_LONG


def busy(error: BaseException) -> bool:
    """Return whether no such transaction can be taken now: it is turned away, others hold locks, the server is read-only, its disk full."""
    full = isinstance(getattr(error, "orig", None), sqlite3.OperationalError) and any(word in str(error).lower() for word in _SQLITE_BUSY)
    return code(error) in CONFLICTS | TOO_LONG | TURNED_AWAY | READ_ONLY | FULL or full or isinstance(error, PoolTimeout)


def passing(error: BaseException) -> bool:
    """Return whether the same transaction may go through when it is run again."""
    return lost(error) or busy(error)
