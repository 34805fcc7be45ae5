"""Dead letters that other tools write back, to the inbox or to the topic of their origin."""

from collections.abc import Callable
from dataclasses import replace

import orjson

from docllm.schemas.task.record import header_names
from docllm.schemas.task.record.envelope import Outgoing, is_letter
from docllm.schemas.task.states import Status
from tests.integration.support import checker
from tests.integration.support.deployment import Deployment, task_line
from tests.integration.support.installations import repeated_on_embedded

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


def bare(deployment: Deployment) -> list[Outgoing]:
    """Return the tasks' dead letters as tools write them that keep no headers and no key."""
    inbox = deployment.topics.name("inbox")
    letters = deployment.bus.copies(deployment.topics.name("dlq"))
    return [
        Outgoing(inbox, None, letter.value, []) for letter in letters if is_letter(letter.headers)
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
    lines = [orjson.dumps(task_line(number)) for number in range(3, 3 + DIRECT)]
    deployment.bus.write([Outgoing(inbox, None, line, []) for line in [*lines, b"garbage"]])
    deployment.expect(f"{deployment.group}-direct", [f"t{n}" for n in range(3, 3 + DIRECT)])
    deployment.until_done()
    tasks, calls = 3 + DIRECT, len(llm.calls())
    assert deployment.ledger.counts()["dead"] == tasks
    assert len(deployment.bus.letters(letters)) == tasks + 1

    deployment.bus.write(written_back(deployment))
    (left,) = deployment.until_done()

    assert deployment.ledger.counts()["dead"] == tasks == len(deployment.ledger.tasks())
    assert len(llm.calls()) == calls
    assert len(deployment.bus.letters(letters)) == tasks + 1
    assert f"docllm replay --group {deployment.group} --id t0 --batch" in left.err

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


@repeated_on_embedded
def test_letters_without_their_headers_replay_their_tasks_where_that_is_wanted(
    deployment: Deployment, settings: Callable[[Deployment, str], None]
) -> None:
    """A tool that writes back the bare lines makes no second task, with the setting or without.

    The lines are those of a load and of the inbox. A line that names a batch is a new task.
    """
    llm = deployment.llm("--latency", "0", "--faults", "413=1")
    deployment.load(3)
    lines = [orjson.dumps(task_line(number)) for number in range(3, 3 + DIRECT)]
    inbox = deployment.topics.name("inbox")
    deployment.bus.write([Outgoing(inbox, None, line, []) for line in lines])
    deployment.expect(f"{deployment.group}-direct", [f"t{n}" for n in range(3, 3 + DIRECT)])
    deployment.until_done()
    tasks, calls = 3 + DIRECT, len(llm.calls())
    assert deployment.ledger.counts()["dead"] == tasks

    deployment.bus.write(bare(deployment))
    (left,) = deployment.until_done()

    assert deployment.ledger.counts()["dead"] == tasks == len(deployment.ledger.tasks())
    assert len(llm.calls()) == calls
    assert deployment.ledger.quarantined() == []
    assert f"docllm replay --group {deployment.group} --id t0 --batch" in left.err
    assert "name a batch in the header docllm-batch" in left.err

    llm.dial()
    settings(deployment, "[inbox]\nredrive = true\n")
    deployment.bus.write(bare(deployment) * 2)
    deployment.until_done(agents=2)
    deployment.bus.write(bare(deployment))
    deployment.until_done()

    assert {task.status for task in deployment.ledger.tasks()} == {Status.SUCCEEDED}
    assert len(deployment.ledger.tasks()) == tasks
    assert len(llm.calls()) == calls + tasks
    assert len(deployment.bus.letters(deployment.topics.name("dlq"))) == tasks
    assert checker.violations(deployment.evidence()) == []

    again = Outgoing(inbox, None, lines[0], [(header_names.BATCH, b"again")])
    deployment.bus.write([again])
    deployment.expect("again", ["t3"])
    deployment.until_done()
    assert len(deployment.ledger.tasks()) == tasks + 1
