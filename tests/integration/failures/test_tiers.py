"""Retries wait in tiers: never early and hardly late, whatever ends the wait.

That is success, `cancel`, a deadline, or another list of tiers.
"""

import signal
from datetime import UTC, datetime, timedelta
from statistics import quantiles

import orjson

from docllm.schemas.task.states import Status
from tests.integration.failures.dues import DueWatch
from tests.integration.support import checker
from tests.integration.support.deployment import BATCH, Deployment, task_line
from tests.invariants.evidence import Evidence

RETRIES = 1600  # twice as many as there are tasks, which keep all slots busy meanwhile
LATE_S = 2.0
UNUSABLE = "malformed=1"  # a failure of the task's own, which says nothing bad about the route


def test_retries_are_never_early(embedded: Deployment) -> None:
    """Under load no attempt is called before its due time in the ledger.

    The lateness is printed.
    """
    embedded.use_tiers("2s", "4s", max_attempts=50)
    llm = embedded.llm("--latency", "0.02", "--faults", "malformed=0.8")
    embedded.load(800)

    with DueWatch(embedded.ledger) as watch:
        agent = embedded.agent("--until-done", "--slots", "100")
        embedded.until(
            lambda: len(watch.dues) >= RETRIES,
            f"{RETRIES} retries that the watch has seen",
        )
        llm.dial()
        assert agent.wait() == 0, agent.tail()

    run = embedded.evidence()
    tell_lateness(run, watch)
    assert len(watch.dues) >= RETRIES
    assert checker.calls_before_due(run, watch.dues) == []
    assert {task.status for task in run.tasks} == {Status.SUCCEEDED}
    assert checker.violations(run) == []


def test_retries_are_hardly_late(deployment: Deployment) -> None:
    """While slots are free, a retry begins within 2 s of its due time.

    On a busy machine it may take as much longer as the first calls of all tasks took.
    """
    deployment.use_tiers("3s", max_attempts=3)
    llm = deployment.llm("--latency", "0.02", "--faults", UNUSABLE)
    deployment.load(300)

    with DueWatch(deployment.ledger) as watch:
        agent = deployment.agent("--until-done", "--slots", "100")
        deployment.until(lambda: deployment.ledger.counts()["retrying"] >= 200, "tasks in the tier")
        llm.dial()
        assert agent.wait() == 0, agent.tail()

    run = deployment.evidence()
    assert tell_lateness(run, watch) < LATE_S + pace_s(run)
    assert len(watch.dues) >= 200
    assert checker.calls_before_due(run, watch.dues) == []
    assert checker.violations(run) == []


def test_tasks_in_a_tier_can_be_cancelled(deployment: Deployment) -> None:
    """`cancel` ends tasks in a tier at once; their records are finished without a call."""
    deployment.use_tiers("8s")
    llm = deployment.llm("--latency", "0", "--faults", UNUSABLE)
    deployment.load(60)
    agent = deployment.agent("--until-done", "--slots", "60")
    deployment.until(lambda: deployment.ledger.counts()["retrying"] == 60, "all tasks in the tier")

    deployment.producer("cancel", "--batch", BATCH)
    cancelled = deployment.ledger.counts()["cancelled"]

    assert agent.wait() == 0, agent.tail()
    assert cancelled == 60
    assert len(llm.calls()) == 60
    assert checker.violations(deployment.evidence()) == []


def test_deadline_that_passes_in_a_tier_ends_the_task(embedded: Deployment) -> None:
    """A task whose deadline comes before its next attempt is dead as expired, without a call."""
    embedded.use_tiers("30s")
    llm = embedded.llm("--latency", "0", "--faults", UNUSABLE)
    deadline = (datetime.now(UTC) + timedelta(seconds=29)).isoformat()
    late = [task_line(number, deadline=deadline) for number in range(20)]
    embedded.producer(
        "load", str(embedded.write_lines([*late, *(task_line(number) for number in range(20, 40))]))
    )
    embedded.expect(BATCH, (f"t{number}" for number in range(40)))
    agent = embedded.agent("--until-done", "--slots", "40")

    embedded.until(lambda: embedded.ledger.counts()["retrying"] == 40, "all tasks in the tier")
    llm.dial()

    assert agent.wait() == 0, agent.tail()
    run = embedded.evidence()
    assert {row.disposition for row in embedded.ledger.dead_letters()} == {"expired"}
    assert {task.name for task in run.tasks if task.death} == {
        f"{BATCH}/t{number}" for number in range(20)
    }
    assert len(run.calls) == 60
    assert checker.violations(run) == []
    # Each had one attempt, before its deadline.
    assert "20 attempts, " in embedded.producer("dead", "list")


def test_a_task_that_was_late_from_the_beginning_had_no_attempt(embedded: Deployment) -> None:
    """`dead list`, `show` and the export count what was tried."""
    llm = embedded.llm("--latency", "0")
    line = task_line(0, deadline="2020-01-01T00:00:00Z")
    embedded.producer("load", str(embedded.write_lines([line])))
    embedded.until_done()

    shown = embedded.producer("dead", "show", "t0")
    (exported,) = embedded.producer("export", "--batch", BATCH).splitlines()

    assert "0 attempts, 0+0 tokens; " in embedded.producer("dead", "list")
    assert "\n  0 of 5 attempts counted" in shown
    assert "\n  attempts that did not succeed: none\n" in shown
    assert "  no attempt, dead on route default: EXPIRED, " in shown
    assert orjson.loads(exported)["attempts"] == 0
    assert llm.calls() == []


def test_old_tier_is_drained(deployment: Deployment) -> None:
    """Tasks in a tier that is no longer configured still run when they are due."""
    deployment.use_tiers("9s", "15s")
    llm = deployment.llm("--latency", "0", "--faults", UNUSABLE)
    deployment.load(60)
    with DueWatch(deployment.ledger) as watch:
        agent = deployment.agent("--slots", "60")
        deployment.until(
            lambda: deployment.ledger.counts()["retrying"] == 60, "all tasks in the tier"
        )
        agent.signal(signal.SIGTERM)
        assert agent.wait() == 0, agent.tail()
        llm.dial()

        deployment.use_tiers("2s")
        deployment.until_done("--slots", "60")

    run = deployment.evidence()
    assert {task.status for task in run.tasks} == {Status.SUCCEEDED}
    assert checker.calls_before_due(run, watch.dues) == []
    assert checker.violations(run) == []


def pace_s(run: Evidence) -> float:
    """Return the seconds between the first calls of the first and of the last task."""
    first_s: dict[str, float] = {}
    for call in run.calls:
        first_s[call.name] = min(call.start_s, first_s.get(call.name, call.start_s))
    return max(first_s.values()) - min(first_s.values())


def tell_lateness(run: Evidence, watch: DueWatch) -> float:
    """Print the percentiles of the lateness; return the largest, in seconds."""
    late_s = sorted(checker.lateness_s(run, watch.dues).values())
    cuts = quantiles(late_s, n=100)
    print(  # noqa: T201
        f"{len(late_s)} retries, late by p50 {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s, at most "
        f"{late_s[-1]:.2f} s"
    )
    return late_s[-1]
