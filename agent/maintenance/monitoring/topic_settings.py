"""Notices that the settings of the group's topics were changed while agents run.

An agent compares them when it starts. A limit of retention that is set later deletes waiting work.
"""

import logging

from docllm.agent.maintenance.duty import Duty, repeat
from docllm.agent.reporting.telemetry import Counts
from docllm.producer.bus.topic_family import TopicFamily
from docllm.schemas.codes import Code
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.runtime.outage import Outage

log = logging.getLogger(__name__)

EVERY_S = 60.0


class TopicSettings:
    """The comparison of the topics' settings with those that they must have."""

    def __init__(
        self, *, family: TopicFamily, counts: Counts, clock: Clock, kafka: Outage, group: str
    ) -> None:
        self._family = family
        self._counts = counts
        self._clock = clock
        self._group = group
        self._duty = Duty(name="comparing topics", work=self.compare, clock=clock, kafka=kafka)

    async def run(self) -> None:
        """Compare every minute until cancelled."""
        await repeat([self._duty], lambda: self._clock.sleep(EVERY_S))

    async def compare(self) -> None:
        """Compare once; log each difference when it is first seen."""
        changed = await self._family.changed_settings()
        for topic, text in changed.items():
            if self._counts.changed_topics.get(topic) != text:
                log.warning(
                    "topic %s may lose waiting work: %s; run: docllm topics apply --group %s",
                    topic,
                    text,
                    self._group,
                    extra={"code": Code.TOPIC_CHANGED},
                )
        self._counts.changed_topics = changed
