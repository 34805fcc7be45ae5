"""Many rows in one statement: the size of a statement."""

from unittest.mock import create_autospec

from pymysql.connections import Connection as PyMySQL
from sqlalchemy import Connection
from sqlalchemy.dialects import mysql

from docllm.producer.bus.topic_family import TOPIC_SETTINGS
from docllm.producer.ledger import quarantine
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.bulk import STATEMENT_BYTES, insert_rows
from docllm.schemas.ledger.database import MIN_PACKET_BYTES
from docllm.schemas.task.record.envelope import MAX_TASK_BYTES


def test_the_least_packet_holds_the_largest_statement() -> None:
    """The least packet holds the largest record, as a task's input and in the quarantine.

    As a task's input it stands behind a page that was not full yet.
    """
    largest = int(TOPIC_SETTINGS["max.message.bytes"])
    headers = bytes(quarantine.KEPT_HEADER_BYTES)
    before = {
        "task_id": 1,
        "raw_key": b"",
        "headers": b"",
        "body": bytes(STATEMENT_BYTES // 2 - 100),
    }
    task = {
        "task_id": 2,
        "raw_key": bytes(largest - MAX_TASK_BYTES),
        "headers": headers,
        "body": bytes(MAX_TASK_BYTES),
    }

    server = create_autospec(Connection, instance=True)
    server.dialect = mysql.dialect()
    insert_rows(server, tables.task_input, [before, task])
    kept = bytes(quarantine.KEPT_BYTES + quarantine.BEGINNING_BYTES + quarantine.KEPT_HEADER_BYTES)

    (statement, *_), _ = server.exec_driver_sql.call_args
    written = PyMySQL(defer_connect=True).escape(kept)
    assert server.exec_driver_sql.call_count == 1
    assert max(len(statement), len(written)) + 10_000 < MIN_PACKET_BYTES


def test_values_that_all_rows_share_and_others_stand_in_their_columns() -> None:
    """Each row has each of its values, in whatever order its columns come."""
    rows: list[dict[str, object]] = [
        {"task_id": 1, "raw_key": b"%s", "headers": None, "body": b"%"},
        {"task_id": 2, "headers": None, "body": b"x", "raw_key": b"%s"},
    ]
    server = create_autospec(Connection, instance=True)
    server.dialect = mysql.dialect()

    insert_rows(server, tables.task_input, rows)
    insert_rows(server, tables.task_input, rows[:1])

    both, one = (str(call.args[0]) for call in server.exec_driver_sql.call_args_list)
    head = "INSERT INTO task_input (task_id,raw_key,headers,body) VALUES "
    assert both == f"{head}(1,X'2573',NULL,X'25'),(2,X'2573',NULL,X'78')"
    assert one == f"{head}(1,X'2573',NULL,X'25')"
