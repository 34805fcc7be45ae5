"""Foreign producers: task lines in the inbox become tasks, all others are quarantined."""

import asyncio
import signal

import orjson
from confluent_kafka import Producer

from docllm.producer.ports import Backlog
from docllm.schemas.task.record.envelope import Outgoing, Publication, encode
from tests.contract.support import kafka_parts
from tests.integration.records import raw_producer
from tests.integration.support import checker
from tests.integration.support.buses import KafkaBus
from tests.integration.support.deployment import BATCH, Deployment, task_line
from tests.servers import Kafka

BODY = {"model": "m", "messages": [{"role": "user", "content": "Say something small."}]}
OPENAI = orjson.dumps(
    {"custom_id": "c1", "method": "POST", "url": "/v1/chat/completions", "body": BODY}
)
HUGE = 10**17
SAME = b"one partition, so that the first of them is the first"


def line(number: int) -> bytes:
    return orjson.dumps(task_line(number))


def test_inbox_lines_become_tasks_and_garbage_is_quarantined(deployment: Deployment) -> None:
    """Lines of both formats run once, with and without key and headers.

    Each record that is no task line is quarantined with a dead letter.
    """
    deployment.llm("--latency", "0")
    deployment.load(1)
    inbox = deployment.topics.name("inbox")
    good = [
        Outgoing(inbox, SAME, line(1), []),
        Outgoing(inbox, b"some key", line(2), [("trace", b"abc"), ("docllm-fence", b"999999999")]),
        Outgoing(inbox, b"c1", OPENAI, []),
        Outgoing(inbox, None, line(3), [("docllm-batch", b"night")]),
        Outgoing(inbox, SAME, line(1), []),
    ]
    bad = [
        Outgoing(inbox, b"k", b"garbage", []),
        Outgoing(inbox, b"k", None, []),
        Outgoing(inbox, None, b"", []),
        Outgoing(inbox, None, b'{"id":"x"}', []),
        Outgoing(inbox, None, b"\xff\xfe\x00", [("h", b"\xff\x00")]),
        Outgoing(inbox, SAME, orjson.dumps(task_line(1, prompt="other: {document}")), []),
        Outgoing(inbox, None, line(4), [("docllm-batch", b" \n")]),
    ]
    deployment.bus.write(
        [line for pair in zip(good, bad, strict=False) for line in pair] + bad[len(good) :]
    )
    deployment.expect(f"{deployment.group}-direct", ["t1", "t2", "c1"])
    deployment.expect("night", ["t3"])

    deployment.until_done()

    run = deployment.evidence()
    assert checker.violations(run) == []
    assert len(run.quarantined) == len(bad)
    assert {letter.value for letter in run.letters} >= {b"garbage", b'{"id":"x"}'}
    assert next(task.raw_key for task in run.tasks if task.name.endswith("/t2")) == b"some key"


def test_foreign_records_on_the_task_topic_stop_nothing(deployment: Deployment) -> None:
    """Foreign records on the task topic are quarantined; the tasks around them run once.

    They have no headers of docllm, belong to another ledger, or have hostile numbers.
    """
    llm = deployment.llm("--latency", "0")
    deployment.load(20)
    ledger, group = deployment.status()["ledger"], deployment.group
    task = next(task for task in deployment.ledger.tasks() if task.name == "tasks/t7")
    topic = deployment.topics.name("tasks")

    def foreign(
        task_id: int, fence: int, *, ledger: str = ledger, group: str = group, value: bytes = b"{}"
    ) -> Outgoing:
        return Outgoing(
            topic,
            b"k",
            value,
            encode(Publication(ledger, group, "tasks", task_id, fence, HUGE, HUGE)),
        )

    strangers = [
        Outgoing(topic, None, b"hello", []),
        Outgoing(topic, b"k", None, []),
        Outgoing(topic, None, line(7), [("docllm-v", b"1"), ("docllm-task", b"-1")]),
        Outgoing(topic, None, b"x", [("docllm-v", b"1"), ("docllm-v", b"2")]),
        foreign(task.id, 0, ledger="0" * 32),
        foreign(task.id, 0, group="somebody"),
        foreign(task.id, HUGE, value=task.value),
        foreign(task.id, 1_000_000, value=task.value),
        foreign(task.id, 0),
        foreign(HUGE, HUGE),
    ]
    deployment.bus.write(strangers)

    deployment.until_done()

    run = deployment.evidence()
    # Shown if the test fails.
    print([row.error_text for row in deployment.ledger.quarantined()])  # noqa: T201
    assert len(run.quarantined) == len(strangers)
    assert len(llm.calls()) == 20
    assert checker.violations(run) == []


def test_agent_with_nothing_but_an_inbox_works_it_off(deployment: Deployment) -> None:
    """With `--until-done`, an agent works off a group that has only records in its inbox."""
    deployment.llm("--latency", "0")
    deployment.producer("topics", "apply")
    deployment.bus.write([Outgoing(deployment.topics.name("inbox"), None, line(1), [])])
    deployment.expect(f"{deployment.group}-direct", ["t1"])

    deployment.until_done()

    assert checker.violations(deployment.evidence()) == []


def test_a_header_whose_name_is_no_text_stops_no_agent(
    on_kafka: Deployment, kafka_server: Kafka
) -> None:
    """A record with a header name that is not UTF-8 is quarantined and stops nobody.

    A producer in C, Go or Rust may write a Latin-1 name, to the inbox or among the tasks.
    """
    on_kafka.llm("--latency", "0")
    on_kafka.load(3)
    names = [on_kafka.topics.name(destination) for destination in ("inbox", "tasks")]
    for name in names:
        raw_producer.write(kafka_server.bootstrap, name, line(1), (b"pr\xfcfung", b"1"))
    on_kafka.bus.write([Outgoing(names[0], None, line(2), [])])
    on_kafka.expect(f"{on_kafka.group}-direct", ["t2"])

    on_kafka.until_done()

    run = on_kafka.evidence()
    assert checker.violations(run) == []
    assert len(run.quarantined) == len(names)


def test_lines_of_a_transaction_are_worked_off_to_the_end(
    on_kafka: Deployment, kafka_server: Kafka
) -> None:
    """Lines of a transaction are worked off to the end.

    Flink and Kafka Streams write this way. Behind the last record is the transaction's marker,
    which nobody reads or commits.
    """
    on_kafka.llm("--latency", "0")
    on_kafka.load(1)
    inbox = on_kafka.topics.name("inbox")
    producer = Producer(
        {
            "bootstrap.servers": kafka_server.bootstrap,
            "transactional.id": f"{on_kafka.group}-stream",
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    for numbers, end in (
        ((1, 2), producer.commit_transaction),
        ((3,), producer.abort_transaction),
        ((4,), producer.commit_transaction),
    ):
        producer.begin_transaction()
        for number in numbers:
            producer.produce(inbox, line(number))
        end(30)
    on_kafka.expect(f"{on_kafka.group}-direct", ["t1", "t2", "t4"])

    on_kafka.until_done()

    broken = checker.violations(on_kafka.evidence())
    assert [
        violation for violation in broken if not violation.startswith("P3 not at the end")
    ] == []
    # This lets the reaper trim the inbox, and sweep.
    backlog = asyncio.run(_backlog(kafka_server, on_kafka.topics.consumer_group("inbox"), inbox))
    assert backlog.lag > 0
    assert backlog.oldest_ms is None


async def _backlog(server: Kafka, group: str, topic: str) -> Backlog:
    admin = await kafka_parts.parts(server.bootstrap).admin()
    try:
        return await admin.backlog(group, [topic])
    finally:
        await admin.close()


def test_an_inbox_that_was_made_again_is_read_after_topics_apply(on_kafka: Deployment) -> None:
    """A recreated inbox is read after `topics apply` stored its id.

    Until then `status` and the log say why it is not read.
    """
    on_kafka.llm("--latency", "0")
    agent = on_kafka.agent()
    inbox, bus = on_kafka.topics.name("inbox"), on_kafka.bus
    on_kafka.until(lambda: on_kafka.status()["agents"], "the agent")
    assert isinstance(bus, KafkaBus)
    bus.delete_topic(inbox)
    on_kafka.until(
        lambda: any(inbox in why for why in on_kafka.status()["reasons"]), "status to say so"
    )
    assert f"topic {inbox} paused" in agent.err

    on_kafka.producer("topics", "apply", "--partitions", "4")
    on_kafka.until(lambda: not on_kafka.status()["reasons"], "the inbox to be known")
    bus.write([Outgoing(inbox, None, line(1), [])])

    on_kafka.expect(f"{on_kafka.group}-direct", ["t1"])
    on_kafka.until(
        lambda: on_kafka.ledger.tasks() and not on_kafka.ledger.open(), "the task to end"
    )
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0, agent.tail()
    assert checker.violations(on_kafka.evidence()) == []


def test_an_inbox_that_is_closed_is_not_read(embedded: Deployment) -> None:
    """A closed inbox is not read, and keeps no agent from leaving.

    Once it is opened again, its lines become tasks.
    """
    embedded.llm("--latency", "0")
    (embedded.folder / "docllm.toml").write_text("[inbox]\nenabled = false\n")
    embedded.producer("topics", "apply")
    embedded.bus.write([Outgoing(embedded.topics.name("inbox"), None, line(1), [])])

    empty = embedded.run("agent", "--group", embedded.group, "--until-done")
    embedded.load(2)
    embedded.until_done()
    closed = {task.name for task in embedded.ledger.tasks()}
    (embedded.folder / "docllm.toml").unlink()
    embedded.expect(f"{embedded.group}-direct", ["t1"])
    embedded.until_done()

    assert empty.code == 0
    assert f"{embedded.topics.name('inbox')} is not read: inbox.enabled is false" in empty.err
    assert [name for name in closed if "-direct/" in name] == []
    assert len(closed) == 2
    assert checker.violations(embedded.evidence()) == []


def test_a_line_of_the_inbox_adds_to_no_batch_that_was_loaded(embedded: Deployment) -> None:
    """A line of the inbox adds to no batch that was loaded, unless that is configured.

    Its result used to be exported as the loaded line's: one header named the batch, and the line's
    id came first.
    """
    embedded.llm("--latency", "0")
    embedded.load(1)
    forged = [
        Outgoing(embedded.topics.name("inbox"), None, line(7), [("docllm-batch", BATCH.encode())])
    ]
    embedded.bus.write(forged)

    ended = embedded.run("agent", "--group", embedded.group, "--until-done")

    assert ended.code == 0
    assert "quarantined, because no task of docllm: 1 record; see: " in ended.err
    assert [task.name for task in embedded.ledger.tasks()] == [f"{BATCH}/t0"]
    (kept,) = embedded.ledger.quarantined()
    assert (kept.disposition, kept.record_value) == ("rejected", line(7))

    (embedded.folder / "docllm.toml").write_text("[inbox]\njoin_batches = true\n")
    embedded.bus.write(forged)
    embedded.until_done()
    lines = map(orjson.loads, embedded.producer("export", "--batch", BATCH).splitlines())
    assert [(line["id"], line.get("origin")) for line in lines] == [("t0", None), ("t7", "inbox")]
