"""Deaths of an agent at work: between claim, call, settle, publish and commit, and while it drains."""

import signal

from sqlalchemy import text

from schemas.task.states import Status
from tests.faults.stage import Stage
from tests.integration.deployment import task_line
from tests.integration.programs import Program

TASKS = 60
SLOTS = ("--slots", "6")
SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}


def beginning(stage: Stage) -> None:
    """An agent that dies before its first call leaves claims, or nothing at all; the next one takes them over."""
    llm = stage.deployment.llm("--latency", "0.1")
    stage.deployment.load(TASKS)
    stage.crash_agent("lease.registered")
    stage.crash_agent("claim.fence_claimed", *SLOTS)
    stage.crash_agent("claim.claimed", *SLOTS)
    assert not llm.calls()
    stage.recover()
    assert len(llm.calls()) == TASKS


def calling(stage: Stage) -> None:
    """An answer that was paid and not settled is lost with its agent; the task is called again for that reason alone."""
    llm = stage.deployment.llm("--latency", "0.1")
    stage.deployment.load(TASKS)
    stage.crash_agent("call.sending", *SLOTS, most=20)
    stage.crash_agent("call.answered", *SLOTS, most=20)
    stage.recover()
    assert len(llm.calls()) > TASKS


def settling(stage: Stage) -> None:
    """What is settled and not committed is read again and not called again."""
    stage.deployment.llm("--latency", "0.1")
    stage.deployment.load(TASKS)
    stage.crash_agent("settle.committed", *SLOTS, most=3)
    assert stage.deployment.ledger.counts()["succeeded"]
    stage.crash_agent("commit.sending", *SLOTS)
    stage.recover()


def committing(stage: Stage) -> None:
    """After a commit the next agent goes on behind it."""
    stage.deployment.llm("--latency", "0.1")
    stage.deployment.load(TASKS)
    stage.crash_agent("commit.done", *SLOTS)
    assert any(one.committed for one in stage.evidence().positions)
    stage.recover()


def splitting(stage: Stage) -> None:
    """A group with rows that the database refuses is settled in parts; a death between two of them changes nothing for the others."""
    stage.deployment.llm("--latency", "0.3")
    stage.deployment.load(TASKS)
    stage.write(
        text(
            _refusing(
                "MOD(NEW.task_id, 5) = 0" if stage.kafka else "NEW.task_id % 5 = 0",
                kafka=stage.kafka,
            )
        )
    )
    stage.crash_agent("settle.split", *SLOTS, most=4)
    run = stage.recover()
    assert sum(task.status == Status.DEAD for task in run.tasks) == TASKS // 5


def _refusing(condition: str, *, kafka: bool) -> str:
    if kafka:
        refuse = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'"
        return f"CREATE TRIGGER refuse BEFORE INSERT ON task_result FOR EACH ROW BEGIN IF {condition} THEN {refuse}; END IF; END"
    return f"CREATE TRIGGER refuse BEFORE INSERT ON task_result WHEN {condition} BEGIN SELECT RAISE(ABORT, 'refused'); END"


def publishing(stage: Stage) -> None:
    """Retries and dead letters whose records were sent are sent once more at most; those that were not sent are sent by the relay."""
    deployment = stage.deployment
    deployment.llm("--latency", "0.1", "--faults", "400=0.2,wrong_schema=0.2")
    path = deployment.write_lines(task_line(number, schema=SCHEMA) for number in range(TASKS))
    deployment.producer("load", str(path))
    deployment.expect("tasks", (f"t{number}" for number in range(TASKS)))
    stage.crash_agent("publish.delivered", *SLOTS, most=4)
    stage.crash_agent("publish.shrunk", *SLOTS, most=4)
    stage.age_orders()
    stage.crash_reaper("relay.taken")
    stage.age_orders()
    run = stage.recover()
    assert {task.status for task in run.tasks} == {Status.SUCCEEDED, Status.DEAD}


def draining(stage: Stage) -> None:
    """A drain that is cut off leaves what a death in mid-run leaves: what was settled stays, what was not runs again."""
    stage.deployment.llm("--latency", "1")
    stage.deployment.load(TASKS)

    def drain(agent: Program) -> None:
        stage.deployment.until(
            lambda: stage.deployment.ledger.claims_of(agent.pid), "the agent to work"
        )
        agent.signal(signal.SIGTERM)

    for step in ("group_left", "settled", "published"):
        stage.crash_agent(f"drain.{step}", *SLOTS, then=drain)
    stage.recover("--slots", str(TASKS))
