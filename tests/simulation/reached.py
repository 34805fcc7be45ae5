"""The limits that a run's agents reached: a limit that was never reached is not proved."""

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import chain
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

# By class and method that meet limits: how to tell, after a call, whether it reached each.
_AFTER: dict[tuple[type, str], dict[str, Callable[..., bool]]] = {
    (Partitions, "pause"): {"wide span": lambda partitions, _: bool(partitions._wide)},
    (Backpressure, "update"): {
        "backpressure by count": lambda pressure, _: bool(pressure._full_lanes),
        "backpressure by bytes": lambda pressure, _: _is_heavy(pressure),
        "backpressure by quarantine": lambda pressure, _: (
            len(pressure.quarantine) > pressure.limits.rejected
        ),
        "backpressure by shelved records": lambda pressure, _: _are_shelved(pressure),
    },
    (ReadyQueue, "shelve"): {"shelved route": lambda queue, _: bool(queue._shelved)},
    (InFlightTable, "take_to_ask"): {"asks in pages": lambda table, _: bool(table._to_ask)},
    (InFlightTable, "take_ready"): {
        "claims in pages": lambda table, taken: len(taken) == table.kept_answers._limits.page
    },
    (Slots, "start_when_free"): {"claims ahead": lambda slots, _: slots.ahead > 0},
    (QuarantineQueue, "_page"): {"quarantine in pages": lambda queue, _: bool(queue._rejected)},
    (Settler, "_take_page"): {"settles in pages": lambda settler, _: bool(settler._waiting)},
    (Inbox, "take_page"): {"inbox in pages": lambda inbox, _: not inbox.is_empty},
    (Inbox, "pause_or_resume"): {
        "inbox paused": lambda inbox, _: len(inbox._records) > inbox._limits.inbox_records
    },
}
# Limits that rows or crash points show, and an answer that was not kept.
MOVED, RELIEF, FORGOTTEN = "move to the ledger", "relief", "paid answer dropped"
POINTS = {"relief.ordered": RELIEF}
ALL = (*chain.from_iterable(_AFTER.values()), MOVED, RELIEF, FORGOTTEN)


def _is_heavy(pressure: Any) -> bool:
    held = pressure.table.bodies_bytes + pressure.quarantine.bytes
    return bool(held >= pressure.limits.bodies_bytes)


def _are_shelved(pressure: Any) -> bool:
    most, partitions = pressure.limits.shelved, pressure.partitions
    tiers = (topic for topic in partitions.topics if topic not in pressure.lanes)
    return bool(
        pressure.table.shelved >= most or any(partitions.unfinished(tier) >= most for tier in tiers)
    )


@contextmanager
def noting(reached: Counter[str]) -> Iterator[None]:
    """Note in `reached` which limits agents reach."""
    with ExitStack() as stack:
        for (owner, method), limits in _AFTER.items():
            wrapped = _watched(getattr(owner, method), limits, reached)
            stack.enter_context(patched(owner, method, wrapped))
        stack.enter_context(patched(KeptAnswers, "keep", _keeping_answer(reached)))
        yield


def _watched(
    method: Callable[..., Any], limits: Mapping[str, Callable[..., bool]], reached: Counter[str]
) -> Callable[..., Any]:
    left = dict(limits)  # nobody asks a second time for a limit that was reached

    @functools.wraps(method)
    def watched(self: Any, *args: Any, **options: Any) -> Any:
        result = method(self, *args, **options)
        if left:
            for name in [name for name, is_reached in left.items() if is_reached(self, result)]:
                reached[name] += 1
                del left[name]
        return result

    return watched


def _keeping_answer(reached: Counter[str]) -> Callable[..., int]:
    keep = KeptAnswers.keep

    def keeping(self: KeptAnswers, delivery: Any, answer: Any) -> int:
        dropped = keep(self, delivery, answer)
        reached[FORGOTTEN] += dropped > 0
        return dropped

    return keeping
