"""A tenant that has much gets its next tasks into the bulk lane."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from docllm.producer.ledger.new_tasks import NewTask
from docllm.producer.loading.unfinished import FRESH_S, Overflow
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.task.record.lanes import Lane
from tests.support.clock import HandClock
from tests.support.doubles import double_of


def new_task(tenant: str, lane: Lane = Lane.NORMAL) -> NewTask:
    return NewTask(
        key=b"k",
        digest=b"d",
        value=b"v",
        type="document",
        tenant=tenant,
        max_attempts=5,
        expires_at=None,
        raw_key=None,
        lane=lane,
    )


class Ledger:
    """Says how much tenants have, and counts the questions."""

    def __init__(self, **unfinished: int) -> None:
        self.unfinished, self.questions = unfinished, 0

    async def read(self, *_: Any) -> Counter[str]:
        self.questions += 1
        return Counter(self.unfinished)


def overflow(ledger: Ledger, limit: int, clock: HandClock | None = None) -> Overflow:
    return Overflow(
        transactions=double_of(Transactions, read=ledger.read),
        clock=clock or HandClock(),
        group="g",
        limit=limit,
    )


def lanes(chooser: Overflow, tasks: Sequence[NewTask]) -> list[Lane]:
    asyncio.run(chooser.place(tasks))
    return [task.lane for task in tasks]


def test_what_exceeds_the_limit_goes_to_the_bulk_lane() -> None:
    """What the ledger has counts, and what this load has added before."""
    chooser = overflow(Ledger(acme=3), limit=5)

    four = [new_task("acme") for _ in range(4)]
    assert lanes(chooser, four) == [Lane.NORMAL] * 2 + [Lane.BULK] * 2
    assert lanes(chooser, [new_task("acme"), new_task("bolt")]) == [Lane.BULK, Lane.NORMAL]


def test_a_task_that_names_another_lane_stays_there() -> None:
    """Only normal tasks move: an urgent one was meant to be urgent."""
    tasks = [new_task("acme", lane) for lane in (Lane.URGENT, Lane.NORMAL, Lane.BULK)]

    assert lanes(overflow(Ledger(acme=99), limit=5), tasks) == [Lane.URGENT, Lane.BULK, Lane.BULK]


def test_without_a_limit_nothing_moves_and_nobody_is_asked() -> None:
    """0 is no limit."""
    ledger = Ledger(acme=10**9)

    assert lanes(overflow(ledger, limit=0), [new_task("acme")]) == [Lane.NORMAL]
    assert ledger.questions == 0


def test_the_ledger_is_asked_every_few_seconds() -> None:
    """A tenant whose tasks are done has room again; each chunk of a load asks nothing."""
    ledger, clock = Ledger(acme=5), HandClock()
    chooser = overflow(ledger, 5, clock)
    assert lanes(chooser, [new_task("acme")]) == [Lane.BULK]
    ledger.unfinished = {}
    assert lanes(chooser, [new_task("acme")]) == [Lane.BULK]
    assert ledger.questions == 1

    clock.at_s += FRESH_S + 1

    assert lanes(chooser, [new_task("acme")]) == [Lane.NORMAL]
