"""After a lost ledger, dead letters are loaded back from their topic, each task once."""

import secrets
import shutil

import orjson
import pytest

from docllm.schemas.task.record.envelope import Outgoing
from docllm.schemas.task.states import Status
from tests.integration.support.deployment import BATCH, Deployment, task_line
from tests.integration.support.ledgers import LedgerView
from tests.servers import DatabaseServer

TASKS = 300


def new_ledger(deployment: Deployment, request: pytest.FixtureRequest) -> None:
    """Lose the ledger; the topics stay."""
    if not deployment.kafka:
        data = deployment.folder / "docllm-data"
        for path in data.glob("ledger.sqlite*"):
            path.unlink()
        shutil.rmtree(data / "locks", ignore_errors=True)
        return
    server: DatabaseServer = request.getfixturevalue("database_server")
    url = server.create_database(f"n{secrets.token_hex(4)}")
    deployment.environ["DOCLLM_DATABASE_URL"] = url
    deployment.ledger = LedgerView(url)
    deployment.producer("migrate")
    deployment.producer("topics", "apply")


def test_lost_ledger_is_filled_from_the_dead_letters(
    deployment: Deployment, request: pytest.FixtureRequest
) -> None:
    """Tasks that died twice come back once, into their batches; a second run loads nothing.

    A foreign line comes back only if it is asked for.
    """
    llm = deployment.llm("--latency", "0", "--faults", "413=1")
    deployment.load(TASKS)
    deployment.bus.write(
        [
            Outgoing(
                deployment.topics.name("inbox"), b"k", orjson.dumps(task_line(1)) + b"garbage", []
            )
        ]
    )
    deployment.until_done("--slots", "100")
    deployment.producer("replay", "--id", "t7", "--yes")
    deployment.until_done()
    llm.dial()
    before = {task.name: (task.value, task.raw_key) for task in deployment.ledger.tasks()}
    aside = [("docllm-quarantine", b"99"), ("docllm-disposition", b"undecodable")]
    letter = Outgoing(deployment.topics.name("dlq"), b"k", orjson.dumps(task_line(1000)), aside)
    deployment.bus.write([letter])

    new_ledger(deployment, request)
    planned = deployment.producer("replay", "--from-topic", "--dry-run")
    empty = deployment.ledger.tasks()
    first = deployment.producer("replay", "--from-topic", "--yes")
    again = deployment.producer("replay", "--from-topic", "--yes")
    asked = deployment.producer(
        "replay", "--from-topic", "--disposition", "undecodable", "--yes", code=1
    )

    records = {task.name: (task.value, task.raw_key) for task in deployment.ledger.tasks()}
    direct = records.pop(f"{deployment.group}-direct/t1000")
    assert empty == []
    left = "left: 2 quarantined records; --disposition undecodable or rejected takes them"
    assert all(left in output for output in (planned, first, again))
    assert f"{TASKS} tasks would be loaded" in planned
    assert f"{TASKS} tasks loaded" in first
    assert f"0 tasks loaded, {TASKS} loaded already" in again
    assert f"left: {TASKS} of other dispositions" in asked
    assert "1 task loaded" in asked
    assert "1 cannot be loaded" in asked
    assert records == before
    assert direct == (letter.value, b"k")

    deployment.until_done("--slots", "100")

    assert {task.status for task in deployment.ledger.tasks()} == {Status.SUCCEEDED}
    assert {batch["name"] for batch in deployment.status()["batches"]} == {
        BATCH,
        f"{deployment.group}-direct",
    }


def test_letters_of_this_ledger_are_refused(embedded: Deployment) -> None:
    """Dead letters of this ledger are refused; the error names plain `replay`.

    With --force nothing is made twice.
    """
    embedded.llm("--latency", "0", "--faults", "400=1")
    embedded.load(3)
    embedded.until_done()

    done = embedded.run("producer", "replay", "--from-topic", "--yes")
    forced = embedded.run("producer", "replay", "--from-topic", "--yes", "--force")

    assert done.code == 2
    assert "run replay without --from-topic" in done.err
    assert (forced.code, "0 tasks loaded, 3 loaded already" in forced.out) == (0, True)
    assert embedded.ledger.counts()["dead"] == 3


def test_a_letter_that_only_points_counts_where_no_other_has_the_value(
    embedded: Deployment,
) -> None:
    """A pointer letter counts only if no other letter has the task's value.

    Letters of one task count once. A task with nothing but a pointer is reported, with exit code 1.
    """
    embedded.producer("topics", "apply")
    topic = embedded.topics.name("dlq")
    line = orjson.dumps(task_line(1))

    def letter(fence: int, value: bytes | None, task: bytes = b"7") -> Outgoing:
        named = [
            ("docllm-ledger", b"f" * 32),
            ("docllm-batch", b"b"),
            ("docllm-task", task),
            ("docllm-fence", b"%d" % fence),
        ]
        pointer = [("docllm-pointer", b"3 MiB in the ledger")] if value is None else []
        return Outgoing(topic, b"%d" % fence, value, named + pointer)

    embedded.bus.write(
        [letter(1, line), letter(3, line), letter(2, line), letter(4, None), letter(0, None, b"8")]
    )

    done = embedded.run("producer", "replay", "--from-topic", topic, "--yes")

    (task,) = embedded.ledger.tasks()
    assert (task.name, task.value) == ("b/t1", line)
    assert (done.code, "5 letters of 2" in done.out) == (1, True), done
    assert "task 8 of batch b: value is not in the letter" in done.err
