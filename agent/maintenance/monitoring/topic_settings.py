"""Notices that the settings of the group's topics were changed while agents run.

An agent compares them when it starts. A limit of retention that is set later deletes waiting work.
"""

import logging

from docllm.agent.reporting.telemetry import Counts
from docllm.producer.bus.topic_family import TopicFamily
from docllm.schemas.codes import Code

log = logging.getLogger(__name__)

EVERY_S = 60.0


async def compare_topics(family: TopicFamily, counts: Counts, group: str) -> None:
    """Compare the topics' settings with those that they must have; log each new difference."""
    changed = await family.changed_settings()
    for topic, text in changed.items():
        if counts.changed_topics.get(topic) != text:
            log.warning(
                "topic %s may lose waiting work: %s; run: docllm topics apply --group %s",
                topic,
                text,
                group,
                extra={"code": Code.TOPIC_CHANGED},
            )
    counts.changed_topics = changed
