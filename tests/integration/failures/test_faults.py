"""A misbehaving provider: rate limits cost no attempt, permanent errors are dead letters."""

from docllm.schemas.task.states import Status
from tests.integration.support import checker
from tests.integration.support.deployment import BATCH, Deployment, task_line
from tests.integration.support.installations import repeated_on_embedded

RETRY_AFTER_S = 2.0
TOML = """
[llm]
timeout_s = 2
[retry]
tiers = ["1s", "2s"]
max_attempts = 30
"""


@repeated_on_embedded
def test_a_rate_limit_costs_no_attempt_and_is_shown(deployment: Deployment) -> None:
    """While every call gets 429 no task dies, and `status` says why nothing runs.

    No call comes before Retry-After is over.
    """
    llm = deployment.llm("--latency", "0", "--faults", f"429=1,retry_after={RETRY_AFTER_S:g}")
    deployment.load(60)
    agent = deployment.agent("--until-done", "--slots", "10")

    deployment.until(
        lambda: any("429" in reason for reason in deployment.status()["reasons"]),
        "status to tell of 429",
    )
    refused = deployment.status()["batches"][0]
    llm.dial()

    assert agent.wait() == 0, agent.tail()
    run = deployment.evidence()
    assert any("RATE" in name for name in refused["failures"])
    assert refused["counts"]["dead"] == 0
    assert checker.violations(run) == []
    assert checker.attempts_spent(run) == []
    assert checker.calls_too_early(run, 429, RETRY_AFTER_S) == []


def test_errors_of_every_kind_kill_nothing(embedded: Deployment) -> None:
    """Errors, hangs and cut connections in one call of three only delay tasks.

    Each counted attempt is one of them.
    """
    (embedded.folder / "docllm.toml").write_text(TOML)
    llm = embedded.llm("--latency", "0.01", "--faults", "500=0.1,503=0.1,hang=0.05,cut=0.1")
    embedded.load(150)
    agent = embedded.agent("--until-done", "--slots", "10")

    embedded.until_settled(40)
    llm.dial()

    assert agent.wait() == 0, agent.tail()
    run = embedded.evidence()
    print(f"{len(run.calls)} calls for {len(run.tasks)} tasks")  # noqa: T201 - figures
    assert {0, 200, 500, 503} <= {call.status for call in run.calls}
    assert {task.status for task in run.tasks} == {Status.SUCCEEDED}
    assert checker.violations(run) == []
    assert (
        0 < sum(task.attempt for task in run.tasks) <= sum(call.status != 200 for call in run.calls)
    )


def test_bad_answers_end_each_task_once(embedded: Deployment) -> None:
    """Malformed and unfitting answers are retried; each task succeeds or is dead as BAD_OUTPUT."""
    (embedded.folder / "docllm.toml").write_text(TOML.replace("30", "3"))
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    embedded.llm("--latency", "0", "--faults", "malformed=0.03,wrong_schema=0.8")
    path = embedded.write_lines(task_line(number, schema=schema) for number in range(60))
    embedded.producer("load", str(path))
    embedded.expect(BATCH, (f"t{number}" for number in range(60)))

    embedded.until_done("--slots", "20")

    run = embedded.evidence()
    classes = {row.error_class for row in embedded.ledger.dead_letters()}
    print(  # noqa: T201
        f"{len(run.calls)} calls for {len(run.tasks)} tasks, "
        f"{len(embedded.ledger.dead_letters())} dead"
    )
    assert classes == {"BAD_OUTPUT"}
    assert {task.attempt for task in run.tasks if task.death} == {3}
    # The server says 200 to answers that docllm cannot use, so a repeated call is right here.
    assert [line for line in checker.violations(run) if "repeated calls" not in line] == []


def test_permanent_failure_becomes_one_dead_letter(deployment: Deployment) -> None:
    """A refused request is dead at once, with a row that names the class and one record.

    The record on the dlq has the original key and value.
    """
    deployment.llm("--latency", "0", "--faults", "400=1")
    deployment.load(10)  # a dozen would raise a guard

    deployment.until_done()

    run = deployment.evidence()
    rows = deployment.ledger.dead_letters()
    text = deployment.producer("status")
    assert len(run.calls) == 10
    assert {(row.disposition, row.error_class, row.origin_topic) for row in rows} == {
        ("permanent", "BAD_REQUEST", deployment.topics.name("tasks"))
    }
    assert {task.attempt for task in run.tasks} == {1}
    assert "10 dead BAD_REQUEST" in text
    assert checker.violations(run) == []
