"""Cancel in mid-run: running attempts finish, waiting tasks never run, no task is added."""

from tests.integration.support import checker
from tests.integration.support.deployment import BATCH, Deployment
from tests.integration.support.installations import repeated_on_embedded

TASKS = 600


@repeated_on_embedded
def test_cancelled_batch_ends_in_mid_run(deployment: Deployment) -> None:
    """After `cancel` every task is final; called tasks succeeded, the others were never called."""
    llm = deployment.llm("--latency", "0.5")
    deployment.load(TASKS)
    agent = deployment.agent("--until-done", "--slots", "10")
    deployment.until_settled(20)

    output = deployment.producer("cancel", "--batch", BATCH)

    assert agent.wait() == 0, agent.tail()
    run = deployment.evidence()
    counts = deployment.ledger.counts()
    (batch,) = deployment.status()["batches"]
    assert f"batch {BATCH}" in output
    assert counts["succeeded"] + counts["cancelled"] == TASKS
    assert counts["cancelled"] > TASKS // 2
    assert len(llm.calls()) == counts["succeeded"]
    assert {name: batch["counts"][name] for name in ("succeeded", "cancelled", "pending")} == {
        name: counts[name] for name in ("succeeded", "cancelled", "pending")
    }
    assert checker.violations(run) == []


def test_one_task_can_be_cancelled(embedded: Deployment) -> None:
    """`cancel --id` ends one waiting task, and the others run; an unknown id is exit code 1."""
    embedded.llm("--latency", "0")
    embedded.load(5)

    embedded.producer("cancel", "--id", "t3")
    embedded.producer("cancel", "--id", "nobody", code=1)
    embedded.until_done()

    assert embedded.ledger.counts()["cancelled"] == 1
    assert embedded.ledger.counts()["succeeded"] == 4
    assert checker.violations(embedded.evidence()) == []


def test_cancelled_batch_takes_no_more_tasks(embedded: Deployment) -> None:
    """A load into a cancelled batch is refused with exit code 4 and advice."""
    embedded.load(3)
    embedded.producer("cancel", "--batch", BATCH)

    done = embedded.run("producer", "load", str(embedded.folder / f"{BATCH}.jsonl"))

    assert done.code == 4
    assert "--batch" in done.err
