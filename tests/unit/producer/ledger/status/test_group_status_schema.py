"""The published JSON Schema of `status --json`."""

import json
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import jsonschema_rs
import orjson

from docllm.producer.ledger import guards
from docllm.producer.ledger.status.agent_status import AgentState, AgentStatus
from docllm.producer.ledger.status.batch_status import BatchStatus, _failures
from docllm.producer.ledger.status.group_status import GroupStatus
from docllm.producer.text.agent_sentences import Sentence
from docllm.producer.text.urgency import Urgency
from docllm.schemas.agent_report import AgentReport, CallReport, Reason, RouteFacts, SuspectReport
from docllm.schemas.codes import Code
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.guard import Guard
from docllm.schemas.task.states import Status
from tests.support import json_schemas

FULL_REPORT = AgentReport(
    slots=64,
    running=1,
    busy={"default": 1},
    routes=(
        RouteFacts(
            name="default",
            state="parked",
            error_class="MONEY",
            since="2026-01-31T08:00:00Z",
            open_in_s=3.5,
            allowed=1,
        ),
    ),
    routes_left_out=2,
    lag={"tasks": 3},
    oldest_call=CallReport(task=7, batch="tasks", key="a.txt", route="default", running_s=12.5),
    suspects=(SuspectReport(8, "tasks", "b.txt", 3, alone=True),),
    reasons=(Reason(Code.CALLS_HANG, "default", seconds=99.5, count=1, usual_s=1.5),),
    settings="0123456789abcdef",
    program="0.1.0",
    revision="0001",
    loop_age_s=0.4,
)
GUARD = Guard(
    id=1,
    batch_id=2,
    batch="tasks",
    type="document",
    route="default",
    cause="exhausted",
    reason="10 of 10",
    raised_at=datetime(2026, 1, 31, 8),  # noqa: DTZ001 - as it is read
    probe_due_in_s=-1.5,
    open_age_s=0,
    look_at=datetime(2026, 1, 31, 9),  # noqa: DTZ001 - as it is read
)
SCHEMA = Path(__file__).parents[5] / "schemas" / "json" / "status.json"


def test_the_output_of_status_fits_the_published_schema() -> None:
    """The output of `status --json` fits the schema, both for a full and for an empty group."""
    states = ("total", "pending", "processing", "retrying", "succeeded", "dead", "cancelled")
    counts = dict.fromkeys(states, 0) | {"total": 3, "succeeded": 2, "dead": 1}
    batch = BatchStatus(
        name="tasks",
        counts=counts,
        rate_per_s=0.5,
        eta_s=None,
        tokens_in=900,
        tokens_out=120,
        cost=0.02,
        failures={"dead BAD_REQUEST": 1, "tried again RATE": 2},
        cancelled=True,
        half_loaded=True,
        per_minute=(0, 0, 0, 0, 0, 0, 0, 1, 0, 2),
        failed_lately={"RATE": 1},
    )
    full = GroupStatus(
        group="docllm",
        ledger="0" * 32,
        agents=(
            AgentStatus(7, "host-1", AgentState.ALIVE, 0.3),
            AgentStatus(
                id=8,
                name="host-2",
                state=AgentState.ALIVE,
                silent_s=0.3,
                version="0.1.0",
                report=FULL_REPORT,
            ),
            AgentStatus(9, "host-3", AgentState.LOST, 20.0, holds_tasks=True),
        ),
        batches=(batch,),
        orders=2,
        waits=(Sentence(Urgency.NO_AGENT, ("group", "docllm"), "no agent alive"),),
        guards=(GUARD,),
    )
    validator = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text()))

    batches = json.loads(SCHEMA.read_text())["properties"]["batches"]["items"]["properties"]
    assert batches.keys() == {part.name for part in fields(BatchStatus)}
    described = json.loads(SCHEMA.read_text())["properties"]["agents"]["items"]
    assert described["properties"].keys() == full.as_json()["agents"][0].keys()
    report = described["properties"]["report"]["properties"]
    assert report.keys() == {part.name for part in fields(AgentReport)}
    assert report["routes"]["items"]["properties"].keys() == {
        part.name for part in fields(RouteFacts)
    }
    assert set(report["reasons"]["items"]["properties"]["code"]["examples"]) < set(Code)
    for status in (
        full,
        GroupStatus(group="docllm", ledger="0" * 32, agents=(), batches=(), orders=0, waits=()),
    ):
        assert list(validator.iter_errors(orjson.loads(orjson.dumps(status.as_json())))) == []


def test_the_output_of_guards_fits_its_schemas() -> None:
    """`guard list` and `guard open` show a guard as `status` does; each name is described."""
    head = {"version": 1, "group": "docllm"}

    for name, facts in (("guard_list", {}), ("guard_open", {"batch": "tasks"})):
        listing = {"guard_list": "guards", "guard_open": "opened"}[name]
        document = orjson.loads(orjson.dumps(head | facts | {listing: [guards.as_json(GUARD)]}))
        assert json_schemas.faults(name, document) == []


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
        (Status.RETRYING, ErrorClass.UNKNOWN_TYPE),
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
