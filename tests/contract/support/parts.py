"""The interface of one kind of real parts for the suites.

`embedded_parts` and `kafka_parts` each build one, with `parts(...)`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from docllm.agent.ports import Source
from docllm.producer.ports import Publisher, TopicAdmin


@dataclass(frozen=True, slots=True)
class Parts:
    """Factories of one bus.

    The suite closes what it asks for. Factories are called inside the test's event loop.
    """

    # A source of these topics under this group id, not yet started. Its topic_ids.current() returns
    # the live `known`.
    source: Callable[[Sequence[str], str], Awaitable[Source]]
    publisher: Callable[[], Awaitable[Publisher]]
    admin: Callable[[], Awaitable[TopicAdmin]]
    # End a member at once: no leave, no commit. Its thread or process is gone when this returns.
    kill: Callable[[Source], Awaitable[None]]
    delete_topic: Callable[[str], Awaitable[None]]
    # Forget every committed offset of a group id without members.
    delete_offsets: Callable[[str], Awaitable[None]]
    # Set committed offsets of a group id without members, in range or not.
    set_offsets: Callable[[str, Mapping[tuple[str, int], int]], Awaitable[None]]
    # The longest time until a killed member's partitions move.
    session_s: float
    # The ids that `topics apply` has stored, by topic. The suite changes it.
    known: dict[str, str] = field(default_factory=dict)
    # Runs a test to its end, on the clock of these parts.
    run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run
