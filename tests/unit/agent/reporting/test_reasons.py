"""An agent says why nothing moves."""

from datetime import UTC, datetime

import pytest

from docllm.agent.reporting.progress import why_still
from docllm.producer.ledger.status.progress import Waiting
from docllm.schemas.agent_report import AgentReport, CallReport, Reason
from docllm.schemas.codes import Code
from docllm.schemas.task.guard import Guard, GuardCause

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GUARD = Guard(
    id=1,
    batch_id=1,
    batch="b",
    type="document",
    route="r",
    cause=GuardCause.NO_SUCCESS,
    reason="nothing succeeds",
    raised_at=NOW,
    probe_due_in_s=20.0,
    open_age_s=None,
    look_at=NOW,
)
STOPPED = Reason(
    Code.ROUTE_STOPPED,
    "r",
    "NETWORK",
    "refused",
    seconds=4.0,
    model="large",
    address="http://llm:8000/v1",
)
LIMITED = Reason(Code.ROUTE_LIMITED, "r", text="rpm", count=1, agents=2)
CALL = CallReport(task=1, batch="b", key="k", route="r", running_s=40.0)


@pytest.mark.parametrize(
    ("report", "waiting", "reason", "is_trouble"),
    [
        (
            AgentReport(reasons=(STOPPED,)),
            Waiting(),
            "route r (large at http://llm:8000/v1) waits 4 s: NETWORK: refused",
            True,
        ),
        (
            AgentReport(),
            Waiting(guards=(GUARD,)),
            (
                "guard of batch b, type document, route r: nothing succeeds; a prompt is sent to "
                "the route in 20 s"
            ),
            True,
        ),
        (
            AgentReport(running=2, oldest_call=CALL),
            Waiting(),
            "2 tasks run here, the oldest for 40 s: task k of batch b on route r",
            False,
        ),
        (
            AgentReport(reasons=(LIMITED,)),
            Waiting(snoozed=1, snoozed_due_s=9.6),
            (
                "route r waits for its rpm: 1 per minute, 2 agents; 1 task waits for a try after "
                "one that is not counted, the first is due in 10 s"
            ),
            False,
        ),
        (
            AgentReport(reasons=(LIMITED, STOPPED)),
            Waiting(),
            (
                "route r (large at http://llm:8000/v1) waits 4 s: NETWORK: refused; "
                "route r waits for its rpm: 1 per minute, 2 agents"
            ),
            True,
        ),
        (
            AgentReport(),
            Waiting(running={8: 1, 7: 5, 9: 2}, names={9: "other:1"}),
            "3 tasks run elsewhere: agent 8, which is lost, other:1",
            False,
        ),
        (
            AgentReport(),
            Waiting(retrying=1, due_s=12.4, half_loaded=("b",)),
            (
                "1 task waits for another attempt, the first is due in 12 s; batch b: its load "
                "has not ended; if none is running, start the same load again for the rest"
            ),
            True,
        ),
        (
            AgentReport(lag={"tasks": 6}),
            Waiting(snoozed=2, snoozed_due_s=9.6),
            "2 tasks wait for a try after one that is not counted, the first is due in 10 s",
            True,
        ),
        (None, Waiting(orders=2), "2 orders wait to be published", True),
        (AgentReport(lag={"tasks": 3}), Waiting(), "3 records to be read", True),
        (None, Waiting(), "tasks wait until their records arrive", True),
    ],
)
def test_every_wait_has_its_sentence(
    report: AgentReport | None,
    waiting: Waiting,
    reason: str,
    is_trouble: bool,  # noqa: FBT001 - a column of the table
) -> None:
    """The reason is trouble, unless calls only take their time or keep a limit."""
    assert why_still(report, waiting, group="g", own=7) == (reason, is_trouble)
