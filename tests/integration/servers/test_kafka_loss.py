"""Kafka loses records, topics or offsets in mid-run: the sweep finds unreachable tasks.

Each task ends once.
"""

import pytest

from tests.integration.support import checker
from tests.integration.support.buses import KafkaBus
from tests.integration.support.deployment import Deployment

TASKS = 1200
# The default slack is for clusters; a test has one broker and needs less.
TOML = "[agent]\nsweep_slack_s = 1\n"


@pytest.fixture
def bus(on_kafka: Deployment) -> KafkaBus:
    """Return a run that has settled some of its tasks, with access to its Kafka."""
    (on_kafka.folder / "docllm.toml").write_text(TOML)
    on_kafka.llm("--latency", "0.2")
    on_kafka.load(TASKS)
    assert isinstance(on_kafka.bus, KafkaBus)
    return on_kafka.bus


def test_deleted_records_are_published_again(on_kafka: Deployment, bus: KafkaBus) -> None:
    """Deleting all records of the topic loses no task.

    That includes tasks that a killed agent had read and not begun.
    """
    first = on_kafka.agent("--slots", "10")
    on_kafka.until_settled(50)

    bus.delete_records(on_kafka.topics.name("tasks"))
    on_kafka.kill(first)
    left = on_kafka.ledger.open()
    (agent,) = on_kafka.until_done("--slots", "100")

    assert left
    assert "published again" in agent.err
    assert checker.violations(on_kafka.evidence()) == []


def test_topic_made_again_is_filled_again(on_kafka: Deployment, bus: KafkaBus) -> None:
    """A topic recreated under two agents pauses them until `topics apply`.

    Then every task ends once.
    """
    agents = [on_kafka.agent("--until-done", "--slots", "5") for _ in range(2)]
    # An agent that starts without its topic refuses to start.
    on_kafka.until(
        lambda: all(on_kafka.ledger.settled_by(agent.pid) for agent in agents),
        "both agents to settle",
    )

    bus.delete_topic(on_kafka.topics.name("tasks"))
    left = on_kafka.ledger.open()
    on_kafka.until(
        lambda: all("made again" in agent.err or "topic" in agent.err for agent in agents),
        "the agents to notice",
    )
    on_kafka.producer("topics", "apply", "--partitions", "4")

    assert [agent.wait() for agent in agents] == [0, 0], agents[0].tail()
    assert left
    assert checker.violations(on_kafka.evidence()) == []


def test_deleted_offsets_repeat_no_call(on_kafka: Deployment, bus: KafkaBus) -> None:
    """Deleted group offsets repeat no call: the ledger answers that the tasks are done.

    The records are read again from the beginning.
    """
    agent = on_kafka.agent("--slots", "10")
    on_kafka.until_settled(100)
    on_kafka.kill(agent)

    on_kafka.until(lambda: bus.delete_group(on_kafka.group), "the group to be empty")
    left = on_kafka.ledger.open()
    on_kafka.until_done("--slots", "100")

    assert left
    assert checker.violations(on_kafka.evidence()) == []
