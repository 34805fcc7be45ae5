"""Faults inside MariaDB: foreign transactions, and ended or refused connections."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pymysql
from pymysql.constants import ER

from tests.faults import database
from tests.faults.fault import Fault, Kind
from tests.faults.site import AGENTS

HELD_S = 6.5  # longer than the 5 s for which docllm waits for a lock
TRIES_S = 60.0
MET_S = 0.2
OPEN = "SELECT id FROM task WHERE status IN (0, 1, 2) ORDER BY due_at LIMIT %s"
BUSY = (
    "SELECT id FROM task WHERE status=1 UNION (SELECT id FROM task WHERE status=0 ORDER BY "
    "due_at LIMIT %s)"
)
WAITING = "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state='LOCK WAIT'"
OTHERS = "SELECT id FROM information_schema.PROCESSLIST WHERE user='docllm' AND id<>CONNECTION_ID()"


def row_locks(fault: Fault) -> None:
    """Lock the rows of running tasks for longer than docllm waits for a lock."""
    with database.opened(fault.site) as holding, database.opened(fault.site) as looking:
        fault.begin("rows of task", *AGENTS)
        waited = 0
        for _ in _turns(fault):
            with holding.cursor() as cursor, looking.cursor() as look, _rolled_back(cursor):
                cursor.execute(f"{OPEN} FOR UPDATE", (500,))
                end_s = time.monotonic() + HELD_S
                while time.monotonic() < end_s:
                    look.execute(WAITING)
                    waited += int((look.fetchone() or (0,))[0])
                    time.sleep(0.1)
            fault.bit = waited > 0
        fault.evidence["waiting"] = waited


def deadlocks(fault: Fault) -> None:
    """Cause deadlocks: lock rows of tasks in the opposite order, in a heavier transaction.

    docllm locks the same rows from the first to the last.
    """
    with database.opened(fault.site) as connection, connection.cursor() as cursor:
        fault.begin("rows of task", *AGENTS)
        cursor.execute(
            "CREATE TABLE IF NOT EXISTS fault_weight (id BIGINT PRIMARY KEY AUTO_INCREMENT, n INT)"
        )
        before = database.counter(cursor, "Innodb_deadlocks")
        for _ in _turns(fault):
            cursor.execute(BUSY, (60,))
            _backwards(cursor, sorted(row[0] for row in cursor.fetchall()))
            fault.evidence["deadlocks"] = database.counter(cursor, "Innodb_deadlocks") - before
            fault.bit = fault.evidence["deadlocks"] > 0


def _backwards(cursor: pymysql.cursors.Cursor, ids: list[int]) -> None:
    with _rolled_back(cursor):
        # The server ends the transaction that changed fewer rows.
        cursor.execute("INSERT INTO fault_weight (n) SELECT seq FROM seq_1_to_3000")
        for half in (ids[len(ids) // 2 :], ids[: len(ids) // 2]):
            if half:
                cursor.execute("SELECT id FROM task WHERE id IN %s FOR UPDATE", (half,))
            time.sleep(MET_S)  # a program that has an earlier row by now waits for a later one


@contextmanager
def _rolled_back(cursor: pymysql.cursors.Cursor) -> Iterator[None]:
    """Yield a transaction that changes nothing and that the server may end for another one."""
    cursor.execute("BEGIN")
    try:
        yield
    except pymysql.OperationalError as error:
        if error.args[0] not in {ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT}:
            raise
    cursor.execute("ROLLBACK")


def killed_connections(fault: Fault) -> None:
    """End every connection of docllm, again and again."""
    with database.opened(fault.site) as connection, connection.cursor() as cursor:
        fault.begin("connections", *AGENTS)
        killed = 0
        for _ in _turns(fault):
            killed += _kill_others(cursor)
            fault.bit = killed > 0
            time.sleep(0.5)
        fault.evidence["killed"] = killed


def too_many_connections(fault: Fault) -> None:
    """Let the server accept almost no connections."""
    with database.opened(fault.site) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@max_connections")
        usual = (cursor.fetchone() or (300,))[0]
        before = database.counter(cursor, "Connection_errors_max_connections")
        fault.begin("connections", *AGENTS)
        cursor.execute("SET GLOBAL max_connections=10")
        try:
            for _ in _turns(fault):
                _kill_others(cursor)
                time.sleep(1)
                fault.evidence["refused"] = (
                    database.counter(cursor, "Connection_errors_max_connections") - before
                )
                fault.bit = fault.evidence["refused"] > 0
        finally:
            cursor.execute("SET GLOBAL max_connections=%s", (usual,))


def _kill_others(cursor: pymysql.cursors.Cursor) -> int:
    cursor.execute(OTHERS)
    killed = 0
    for (process_id,) in cursor.fetchall():
        try:
            cursor.execute(f"KILL {process_id}")
        except pymysql.Error:
            continue  # it has just ended by itself
        killed += 1
    return killed


def _turns(fault: Fault) -> Iterator[int]:
    """Yield repeatedly for the length of the fault, and longer until somebody has met it."""
    began_s, turn = time.monotonic(), 0
    while (lasted_s := time.monotonic() - began_s) < fault.hold_s or (
        not (turn and fault.bit) and lasted_s < TRIES_S
    ):
        yield turn
        turn += 1


KINDS = (
    Kind("database-row-locks", row_locks, ("database",), (1, 12)),
    Kind("database-deadlocks", deadlocks, ("database",), (3, 10)),
    Kind("database-kill-connections", killed_connections, ("database",), (1, 8)),
    Kind("database-too-many-connections", too_many_connections, ("database",), (3, 10)),
)
