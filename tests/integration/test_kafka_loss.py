"""Kafka loses records, topics or offsets in mid-run: the sweep finds every task that no record can reach, and each ends once."""

import pytest

from tests.integration import checker
from tests.integration.buses import KafkaBus
from tests.integration.deployment import Deployment

TASKS = 1200
# The sweep's patience is for clusters; a test has one broker and less of it.
TOML = "[agent]\nsweep_slack_s = 1\n"


@pytest.fixture
def bus(on_kafka: Deployment) -> KafkaBus:
    """A run that has settled some of its tasks, its Kafka at hand."""
    (on_kafka.folder / "docllm.toml").write_text(TOML)
    on_kafka.llm("--latency", "0.2")
    on_kafka.load(TASKS)
    assert isinstance(on_kafka.bus, KafkaBus)
    return on_kafka.bus


@pytest.mark.timeout(400)
def test_deleted_records_are_published_again(on_kafka: Deployment, bus: KafkaBus) -> None:
    """DeleteRecords up to the end of the topic loses no task, not even those that a killed agent had read and not begun."""
    first = on_kafka.agent("--slots", "10")
    on_kafka.until_settled(50)

    bus.delete_records(on_kafka.topics.name("tasks"))
    on_kafka.kill(first)
    left = on_kafka.ledger.open()
    (agent,) = on_kafka.until_done("--slots", "100", timeout_s=300)

    assert left
    assert "published again" in agent.err
    assert checker.violations(on_kafka.evidence()) == []


@pytest.mark.timeout(400)
def test_topic_made_again_is_filled_again(on_kafka: Deployment, bus: KafkaBus) -> None:
    """A topic that is deleted under two agents pauses them; after `topics apply` they go on and every task ends once."""
    agents = [on_kafka.agent("--until-done", "--slots", "5") for _ in range(2)]
    on_kafka.until_settled(50)

    bus.delete_topic(on_kafka.topics.name("tasks"))
    left = on_kafka.ledger.open()
    on_kafka.until(lambda: all("made again" in one.err or "topic" in one.err for one in agents), "the agents to notice")
    on_kafka.producer("topics", "apply", "--partitions", "4")

    assert [one.wait(300) for one in agents] == [0, 0], agents[0].tail()
    assert left
    assert checker.violations(on_kafka.evidence()) == []


@pytest.mark.timeout(400)
def test_deleted_offsets_repeat_no_call(on_kafka: Deployment, bus: KafkaBus) -> None:
    """After the group's offsets are gone the records are read again from the beginning, and the ledger answers for what is done."""
    agent = on_kafka.agent("--slots", "10")
    on_kafka.until_settled(100)
    on_kafka.kill(agent)

    on_kafka.until(lambda: bus.delete_group(on_kafka.group), "the group to be empty")
    left = on_kafka.ledger.open()
    on_kafka.until_done("--slots", "100", timeout_s=300)

    assert left
    assert checker.violations(on_kafka.evidence()) == []
