"""The published JSON Schema of `status --json`."""

import json
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import jsonschema_rs
import orjson

from producer.ledger.batch_status import BatchStatus, _failures
from producer.ledger.status import AgentState, AgentStatus, GroupStatus
from schemas.task.failures import ErrorClass
from schemas.task.guard import Guard
from schemas.task.states import Status

SCHEMA = Path(__file__).parents[4] / "schemas" / "json" / "status.json"


def test_the_output_of_status_fits_the_published_schema() -> None:
    """The output of `status --json` fits the schema, both for a full and for an empty group."""
    counts = {
        "total": 3,
        "pending": 0,
        "processing": 0,
        "retrying": 0,
        "succeeded": 2,
        "dead": 1,
        "cancelled": 0,
    }
    batch = BatchStatus(
        "tasks",
        counts,
        0.5,
        None,
        900,
        120,
        0.02,
        {"dead BAD_REQUEST": 1, "tried again RATE": 2},
        cancelled=True,
        half_loaded=True,
    )
    # As it is read.
    guard = Guard(
        1,
        2,
        "tasks",
        "document",
        "default",
        "exhausted",
        "10 of 10",
        datetime(2026, 1, 31, 8),  # noqa: DTZ001
        -1.5,
        0,
        None,
    )
    full = GroupStatus(
        "docllm",
        "0" * 32,
        (AgentStatus(7, "host-1", AgentState.ALIVE, 0.3, ""),),
        (batch,),
        2,
        ("no agent alive",),
        (guard,),
    )
    validator = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text()))

    for status in (full, GroupStatus("docllm", "0" * 32, (), (), 0, ())):
        assert list(validator.iter_errors(orjson.loads(orjson.dumps(status.as_json())))) == []


def test_the_schema_describes_failures() -> None:
    """The schema describes failures: dead tasks, and attempts that did not end theirs.

    Retried attempts count towards the limit, snoozed ones do not. A task that was moved to a later
    time was not tried.
    """
    entered = [
        (Status.DEAD, "BAD_REQUEST"),
        (Status.RETRYING, "RATE"),
        (Status.PENDING, "RATE"),
        (Status.RETRYING, ErrorClass.GUARD),
        (Status.RETRYING, ErrorClass.ROUTE),
        (Status.SUCCEEDED, "succeeded"),
    ]
    failures = _failures(
        [SimpleNamespace(state=int(state), outcome=outcome, n=1) for state, outcome in entered]
    )
    schema = json.loads(SCHEMA.read_text())["properties"]["batches"]["items"]["properties"][
        "failures"
    ]["description"]

    assert failures == {"dead BAD_REQUEST": 1, "tried again RATE": 2}
    assert all(f"`{name.rpartition(' ')[0]} CLASS`" in schema for name in failures)
