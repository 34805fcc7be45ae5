"""What the loop tells the rest of the agent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.ports import Order


@dataclass(frozen=True, slots=True)
class Hooks:
    """Calls that return at once."""

    ordered: Callable[[Sequence[Order]], None]  # publish orders were written
    rewound: Callable[[], None]  # Kafka has lost records: the sweep must look
    failed: Callable[[str], None]  # a source has ended for good
