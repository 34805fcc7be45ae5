"""Trimming: finished and committed records are deleted, topic by topic."""

import asyncio
from functools import partial
from typing import Any, cast

from docllm.agent.inflight.partitions import Partitions
from docllm.agent.maintenance.cleanup.trimmer import trim_duties
from docllm.agent.maintenance.duty import Duty
from docllm.producer.ports import Backlog
from docllm.schemas.errors import UnreachableError
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.outage import Outage
from docllm.schemas.task.record.topics import Topics
from tests.support.doubles import double_of


class Admin:
    """Topics with the same committed offset everywhere, one of which may take no deletion."""

    def __init__(self, *, committed: int, refusing: str = "") -> None:
        self.committed = committed
        self.refusing = refusing
        self.trimmed: dict[tuple[str, int], int] = {}

    async def backlog(self, _readers: str, topics: list[str]) -> Backlog:
        return Backlog(0, None, {(topic, 0): self.committed for topic in topics})

    async def trim(self, below: dict[tuple[str, int], int]) -> None:
        if any(topic == self.refusing for topic, _ in below):
            raise UnreachableError("the topic takes no deletion")
        self.trimmed |= below


def trim(admin: Admin, watermarks: dict[tuple[str, int], int]) -> None:
    """Make one round over all topics."""
    kafka = double_of(Outage, logged=False)
    duties = trim_duties(
        partial(Duty, clock=SystemClock(), kafka=kafka),
        Topics("g"),
        cast("Any", admin),
        [double_of(Partitions, marked=lambda: watermarks)],
    )

    async def once() -> None:
        for duty in duties:
            await duty.try_once()

    asyncio.run(once())


def test_a_topic_that_takes_no_deletion_holds_up_no_other() -> None:
    """Such a topic was compacted by mistake, or has no leader."""
    admin = Admin(committed=5, refusing="g.tasks")

    trim(admin, {("g.tasks", 0): 7, ("g.inbox", 0): 3})

    assert admin.trimmed == {("g.inbox", 0): 3}


def test_no_record_is_deleted_that_is_unfinished_or_not_committed() -> None:
    admin = Admin(committed=5)

    trim(admin, {("g.tasks", 0): 7, ("g.inbox", 0): 3})

    assert admin.trimmed == {("g.tasks", 0): 5, ("g.inbox", 0): 3}


def test_a_topic_of_which_nothing_was_finished_is_left_alone() -> None:
    admin = Admin(committed=5)

    trim(admin, {("g.inbox", 0): 3})

    assert set(admin.trimmed) == {("g.inbox", 0)}
