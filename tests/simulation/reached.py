"""The limits that a run's agents reached: a limit that was never reached is not proved."""

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from docllm.agent.dispatch.backpressure import Backpressure
from docllm.agent.dispatch.quarantine_queue import QuarantineQueue
from docllm.agent.execution.settler import Settler
from docllm.agent.execution.slots import Slots
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.inflight.ready_queue import ReadyQueue
from docllm.agent.inflight.table import InFlightTable, KeptAnswers
from docllm.agent.intake.acceptance import Inbox
from tests.simulation.bugs.bug import patched

# A limit, the method that meets it, and whether the method's last call reached it.
_AFTER: tuple[tuple[str, type, str, Callable[..., bool]], ...] = (
    ("wide span", Partitions, "pause", lambda partitions, _: bool(partitions._wide)),
    ("backpressure by count", Backpressure, "update", lambda pressure, _: _is_many(pressure)),
    ("backpressure by bytes", Backpressure, "update", lambda pressure, _: _is_heavy(pressure)),
    (
        "backpressure by quarantine", Backpressure, "update",
        lambda pressure, _: len(pressure.quarantine) > pressure.limits.rejected,
    ),
    (
        "backpressure by shelved records", Backpressure, "update",
        lambda pressure, _: _are_shelved(pressure),
    ),
    ("shelved route", ReadyQueue, "shelve", lambda queue, _: bool(queue._shelved)),
    ("asks in pages", InFlightTable, "take_to_ask", lambda table, _: bool(table._to_ask)),
    (
        "claims in pages", InFlightTable, "take_ready",
        lambda table, taken: len(taken) == table.kept_answers._limits.page,
    ),
    ("claims ahead", Slots, "start_when_free", lambda slots, _: slots.ahead > 0),
    ("quarantine in pages", QuarantineQueue, "_page", lambda queue, _: bool(queue._rejected)),
    ("settles in pages", Settler, "_take_page", lambda settler, _: bool(settler._waiting)),
    ("inbox in pages", Inbox, "take_page", lambda inbox, _: not inbox.is_empty),
    (
        "inbox paused", Inbox, "pause_or_resume",
        lambda inbox, _: len(inbox._records) > inbox._limits.inbox_records,
    ),
)  # fmt: skip
# Limits that rows or crash points show, and an answer that was not kept.
MOVED, RELIEF, FORGOTTEN = "move to the ledger", "relief", "paid answer dropped"
POINTS = {"relief.ordered": RELIEF}
ALL = (*(name for name, *_ in _AFTER), MOVED, RELIEF, FORGOTTEN)


def _is_many(pressure: Any) -> bool:
    return bool(pressure._full_lanes)


def _is_heavy(pressure: Any) -> bool:
    held = pressure.table.bodies_bytes + pressure.quarantine.bytes
    return bool(held >= pressure.limits.bodies_bytes)


def _are_shelved(pressure: Any) -> bool:
    tiers = [topic for topic in pressure.partitions.topics if topic not in pressure.lanes]
    waiting = (pressure.table.shelved, *map(pressure.partitions.unfinished, tiers))
    return bool(max(waiting) >= pressure.limits.shelved)


@contextmanager
def counting(reached: Counter[str]) -> Iterator[None]:
    """Count in `reached` how often agents reach each limit."""
    with ExitStack() as stack:
        for name, owner, method, is_reached in _AFTER:
            wrapped = _watched(getattr(owner, method), name, is_reached, reached)
            stack.enter_context(patched(owner, method, wrapped))
        stack.enter_context(patched(KeptAnswers, "keep", _keeping_answer(reached)))
        yield


def _watched(
    method: Callable[..., Any], name: str, is_reached: Callable[..., bool], reached: Counter[str]
) -> Callable[..., Any]:
    @functools.wraps(method)
    def watched(self: Any, *args: Any, **options: Any) -> Any:
        result = method(self, *args, **options)
        reached[name] += is_reached(self, result)
        return result

    return watched


def _keeping_answer(reached: Counter[str]) -> Callable[..., int]:
    keep = KeptAnswers.keep

    def keeping(self: KeptAnswers, delivery: Any, answer: Any) -> int:
        dropped = keep(self, delivery, answer)
        reached[FORGOTTEN] += dropped > 0
        return dropped

    return keeping
