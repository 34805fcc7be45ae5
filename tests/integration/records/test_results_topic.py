"""Other programs read the results of a group from its topic."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest

from docllm.schemas.runtime import crash
from tests.integration.support.deployment import BATCH, Deployment
from tests.servers import Kafka

SETTINGS = """
[results]
topic = true
[types.work]
handler = "works:work"
"""
FAILS = """
from docllm.agent.handlers import GiveUpError

def work(context):
    raise GiveUpError("not today")
"""
WORKS = """
def work(context):
    return "now"
"""


def configured(deployment: Deployment) -> Path:
    """Turn the topic on; return the module of the type whose tasks die."""
    (deployment.folder / "docllm.toml").write_text(SETTINGS)
    handler = deployment.folder / "works.py"
    handler.write_text(FAILS)
    deployment.llm("--latency", "0")
    if deployment.kafka:
        deployment.producer("topics", "apply")
    return handler


def load(deployment: Deployment) -> None:
    lines = [{"id": f"{number}", "prompt": "Hi"} for number in range(3)]
    lines.append({"id": "bad", "type": "work", "prompt": "Hi"})
    deployment.producer("load", str(deployment.write_lines(lines)))


def states(lines: Iterable[Any]) -> dict[tuple[str, str], int]:
    """Return how often there is a line of each task and state."""
    found: dict[tuple[str, str], int] = {}
    for text in filter(None, lines):
        line = orjson.loads(text)
        key = line["id"], line["status"]
        found[key] = found.get(key, 0) + 1
    return found


ENDED = {("0", "succeeded"), ("1", "succeeded"), ("2", "succeeded"), ("bad", "dead")}


def test_another_client_reads_the_results(on_kafka: Deployment, kafka_server: Kafka) -> None:
    """The lines are those of an export; one more comes after a replay."""
    handler = configured(on_kafka)
    load(on_kafka)
    on_kafka.until_done()
    handler.write_text(WORKS)
    before = on_kafka.producer("export", "--batch", BATCH).splitlines()
    on_kafka.producer("replay", "--batch", BATCH, "--yes")
    on_kafka.until_done()

    records = kafka_server.consumed(f"{on_kafka.group}.results", len(ENDED) + 1)

    parts = [record.split("\t") for record in records]
    assert {headers for headers, _, _ in parts} == {f"docllm-batch:{BATCH}"}
    lines = {value: key for _, key, value in parts}
    assert set(before) <= lines.keys()
    assert all(orjson.loads(line)["id"] == key for line, key in lines.items())
    assert states(lines) == dict.fromkeys([*sorted(ENDED), ("bad", "succeeded")], 1)


@pytest.mark.parametrize("point", ["settle.committed", "publish.delivered"])
def test_no_line_is_lost_with_an_agent(embedded: Deployment, point: str) -> None:
    """It is killed after a settle, before or after the line is sent; a line may come twice."""
    configured(embedded)
    load(embedded)
    agent = embedded.agent(**{crash.VARIABLE: point})
    agent.wait()

    embedded.until_done()

    copies = embedded.bus.copies(f"{embedded.group}.results")
    assert states(record.value for record in copies).keys() == ENDED


def test_a_group_that_has_no_topic_for_results_is_told_what_to_do(on_kafka: Deployment) -> None:
    """The setting is new, and the topics were made before it."""
    (on_kafka.folder / "docllm.toml").write_text(SETTINGS)
    (on_kafka.folder / "works.py").write_text(WORKS)
    on_kafka.llm("--latency", "0")

    done = on_kafka.run("agent", "--group", on_kafka.group, "--until-done")

    assert done.code == 4
    assert f"topic {on_kafka.group}.results is missing; run: docllm topics apply" in done.err
