"""Settings of topics that are changed while agents run are logged once and reported."""

import asyncio

import pytest

from docllm.agent.maintenance.monitoring.topic_settings import compare_topics
from docllm.agent.reporting.telemetry import Counts
from docllm.producer.bus.topic_family import TopicFamily
from tests.support.doubles import double_of


def test_a_changed_setting_is_logged_once_and_reported_until_it_is_set_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The line names the topic, the setting and the command."""
    counts = Counts()
    limit = {"g.tasks": "retention.ms is 1000, must be -1"}
    answers = [{}, limit, limit, {}]

    async def changed_settings() -> dict[str, str]:
        return answers.pop(0)

    family = double_of(TopicFamily, changed_settings=changed_settings)
    reported = []
    while answers:
        asyncio.run(compare_topics(family, counts, "g"))
        reported.append(counts.changed_topics)

    assert reported == [{}, limit, limit, {}]
    (message,) = caplog.messages
    assert message == (
        "topic g.tasks may lose waiting work: retention.ms is 1000, must be -1; run: "
        "docllm topics apply --group g"
    )
