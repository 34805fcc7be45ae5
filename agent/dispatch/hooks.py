"""The calls by which the loop notifies the rest of the agent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.ports import Order


@dataclass(frozen=True, slots=True)
class Hooks:
    """The functions that the loop calls; each returns at once."""

    ordered: Callable[[Sequence[Order]], None]  # publish orders were written
    rewound: Callable[[], None]  # Kafka has lost records, so the sweep must look for them
    failed: Callable[[str], None]  # a source has ended for good
