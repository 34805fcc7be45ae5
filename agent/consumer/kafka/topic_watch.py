"""Fetches a source's topic ids every few seconds and compares them with the stored ids.

`topics apply` stored them. The watch is used on the consumer thread; its questions run in the event
loop, where the topic administration lives.
"""

import asyncio
import concurrent.futures
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from docllm.agent.consumer.kafka.thread_bridge import ThreadBridge
from docllm.agent.consumer.known_topics import StoredIdsReader
from docllm.agent.ports import TopicAdmin, TopicState
from docllm.schemas.errors import DocllmError
from docllm.schemas.runtime.clock import Clock

log = logging.getLogger(__name__)

CHECK_EVERY_S = 3.0
ANSWER_S = 2.0
Question = concurrent.futures.Future[dict[str, TopicState]]


@dataclass(kw_only=True, eq=False)
class TopicWatch:
    """The last topic ids that the brokers gave.

    `topics` are the topics to read. `ids` is None until the first answer; a topic that is missing
    has no id.
    """

    topics: Sequence[str]
    admin: TopicAdmin
    topic_ids: StoredIdsReader
    clock: Clock
    bridge: ThreadBridge

    def __post_init__(self) -> None:
        self._loop = self.bridge.loop
        self._question: Question | None = None
        self._next_at_s = 0.0
        self.ids: Mapping[str, str] | None = None

    def is_known(self, topic: str) -> bool:
        """Return whether the topic exists and has its stored id, if one was stored."""
        actual = (self.ids or {}).get(topic)
        return actual is not None and self.topic_ids.current().get(topic, actual) == actual

    def refresh(self) -> None:
        """Request the ids now and wait up to ANSWER_S; if no answer arrives, keep the last ids."""
        if self._question is None:
            self._ask()
        self._take(ANSWER_S)

    def check(self) -> bool:
        """Ask when it is time, without waiting; return whether there was an answer."""
        if self._question is not None:
            return self._question.done() and self._take(0)
        if self.clock.now_s() >= self._next_at_s:
            self._ask()
        return False

    def close(self) -> None:
        """Ask no more."""
        if self._question is not None:
            self._question.cancel()

    def _ask(self) -> None:
        self._next_at_s = self.clock.now_s() + CHECK_EVERY_S
        question = self.admin.describe(self.topics)
        try:
            self._question = asyncio.run_coroutine_threadsafe(question, self._loop)
        except RuntimeError:
            question.close()
            log.debug("the event loop is closed")

    def _take(self, timeout_s: float) -> bool:
        if self._question is None:
            return False
        try:
            states = self._question.result(timeout_s)
        except (TimeoutError, concurrent.futures.CancelledError):
            return False
        except DocllmError as error:
            log.debug("no topic ids: %s", error)
            self._question = None
            return False
        self._question = None
        self.ids = {name: state.topic_id for name, state in states.items()}
        return True
