"""Dead letters that other tools write back, to the inbox or to the topic of their origin."""

from collections.abc import Callable
from dataclasses import replace

import orjson

from schemas.task.envelope import Outgoing
from schemas.task.states import Status
from tests.integration import checker
from tests.integration.deployment import Deployment, task_line

DIRECT = 2  # tasks of the inbox, without a key


def written_back(deployment: Deployment) -> list[Outgoing]:
    """Return each dead letter as tools write it: to the inbox, and to the topic of its origin."""
    letters = deployment.bus.copies(deployment.topics.name("dlq"))
    origins = [dict(letter.headers)["kafka_dlt-original-topic"].decode() for letter in letters]
    return [
        replace(letter, topic=topic)
        for letter, origin in zip(letters, origins, strict=True)
        for topic in (deployment.topics.name("inbox"), origin)
    ]


def test_letters_that_come_back_replay_their_tasks_where_that_is_wanted(
    deployment: Deployment, settings: Callable[[Deployment, str], None]
) -> None:
    """Without the setting the log has the command; with it each task runs once more.

    Neither makes a second task or a second letter, however often a letter comes back.
    """
    llm = deployment.llm("--latency", "0", "--faults", "413=1")
    inbox, letters = deployment.topics.name("inbox"), deployment.topics.name("dlq")
    deployment.load(3)
    lines = [orjson.dumps(task_line(number)) for number in range(DIRECT)]
    deployment.bus.write([Outgoing(inbox, None, line, []) for line in [*lines, b"garbage"]])
    deployment.expect(f"{deployment.group}-direct", [f"t{number}" for number in range(DIRECT)])
    deployment.until_done()
    tasks, calls = 3 + DIRECT, len(llm.calls())
    assert deployment.ledger.counts()["dead"] == tasks
    assert len(deployment.bus.letters(letters)) == tasks + 1

    deployment.bus.write(written_back(deployment))
    (left,) = deployment.until_done()

    assert deployment.ledger.counts()["dead"] == tasks == len(deployment.ledger.tasks())
    assert len(llm.calls()) == calls
    assert len(deployment.bus.letters(letters)) == tasks + 1
    assert f"python -m producer replay --group {deployment.group} --id t0 --batch" in left.err

    llm.dial()
    settings(deployment, "[inbox]\nredrive = true\n")
    deployment.bus.write(written_back(deployment))
    deployment.until_done(agents=2)
    deployment.bus.write(written_back(deployment))
    deployment.until_done()

    assert {task.status for task in deployment.ledger.tasks()} == {Status.SUCCEEDED}
    assert len(deployment.ledger.tasks()) == tasks
    assert len(llm.calls()) == calls + tasks
    assert len(deployment.bus.letters(letters)) == tasks + 1
    assert len(deployment.ledger.quarantined()) == 1
    assert checker.violations(deployment.evidence()) == []
    assert "dead letters written back" in deployment.producer("replay", "--list")
