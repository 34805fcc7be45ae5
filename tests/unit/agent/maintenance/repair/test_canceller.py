"""The canceller: it goes on with a cancel until no task of its batch is open."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

from docllm.agent.maintenance.repair.canceller import Canceller


class Ledger:
    """Cancelled batches, each with pages of waiting tasks and a number of running tasks."""

    def __init__(self) -> None:
        self.cancelled: frozenset[tuple[int, str, datetime]] = frozenset()
        self.pages: dict[int, int] = {}
        self.open: dict[int, bool] = {}
        self.ran: list[tuple[str, int]] = []

    async def write(self, work: Any, *args: Any) -> Any:
        if work.__name__ == "cancelled":
            return self.cancelled
        self.ran.append((work.__name__, args[0]))
        if work.__name__ == "open_in":
            return self.open[args[0]]
        self.pages[args[0]] -= 1
        return 500, self.pages[args[0]] > 0


def canceller_of(
    ledger: Ledger, ask_about_batches: Callable[[frozenset[str]], object] = frozenset
) -> Canceller:
    return Canceller(
        transactions=cast("Any", ledger),
        group="g",
        ask_about_batches=cast("Any", ask_about_batches),
    )


FIRST, AGAIN = datetime(2026, 1, 1), datetime(2026, 1, 2)  # noqa: DTZ001 - as the ledger has it


def test_a_cancel_goes_on_until_no_task_is_open() -> None:
    """A running task may wait again after its attempt."""
    ledger = Ledger()
    ledger.cancelled = frozenset({(1, "batch", FIRST)})
    canceller = canceller_of(ledger)
    ran = []
    for pages, is_open in ((2, True), (1, False), (1, False)):
        ledger.pages, ledger.open = {1: pages}, {1: is_open}
        ledger.ran.clear()
        asyncio.run(canceller.cancel())
        ran.append([name for name, _ in ledger.ran])

    assert ran == [
        ["cancel_page", "cancel_page", "open_in"],
        ["cancel_page", "open_in"],
        [],
    ]


def test_a_batch_that_was_opened_and_cancelled_again_is_cancelled_again() -> None:
    ledger = Ledger()
    canceller = canceller_of(ledger)
    for cancelled in ({(1, "batch", FIRST)}, {(1, "batch", AGAIN)}):
        ledger.cancelled, ledger.pages, ledger.open = frozenset(cancelled), {1: 1}, {1: False}
        asyncio.run(canceller.cancel())

    assert ledger.ran == [("cancel_page", 1), ("open_in", 1)] * 2


def test_the_agent_learns_of_all_cancelled_batches_after_their_tasks_are_cancelled() -> None:
    """A batch without open tasks is named again: a record of it may have been delayed since."""
    ledger, ran = Ledger(), []
    ledger.cancelled = frozenset({(1, "batch", FIRST)})
    canceller = canceller_of(ledger, lambda batches: ran.append((batches, ledger.ran[-1][0])))
    ledger.pages, ledger.open = {1: 1}, {1: False}
    for _ in range(2):
        asyncio.run(canceller.cancel())

    assert ran == [(frozenset({"batch"}), "open_in")] * 2
