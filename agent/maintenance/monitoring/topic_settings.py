"""Notices that the settings of the group's topics were changed while agents run.

An agent compares them when it starts. A limit of retention that is set later deletes waiting work.
"""

import logging
from dataclasses import dataclass

from docllm.agent.reporting.telemetry import Counts
from docllm.producer.bus.topic_family import TopicFamily
from docllm.schemas.codes import Code

log = logging.getLogger(__name__)

EVERY_S = 60.0


@dataclass(slots=True, kw_only=True, eq=False)
class TopicSettings:
    """The comparison of the topics' settings with those that they must have."""

    family: TopicFamily
    counts: Counts
    group: str

    async def compare(self) -> None:
        """Compare once; log each difference when it is first seen."""
        changed = await self.family.changed_settings()
        for topic, text in changed.items():
            if self.counts.changed_topics.get(topic) != text:
                log.warning(
                    "topic %s may lose waiting work: %s; run: docllm topics apply --group %s",
                    topic,
                    text,
                    self.group,
                    extra={"code": Code.TOPIC_CHANGED},
                )
        self.counts.changed_topics = changed
