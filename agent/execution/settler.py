"""Makes outcomes durable, in pages. Every attempt of a living agent ends here.

The attempts of a lost agent are ended by another agent (`docllm.agent.ledger.recovery.reaping`). An
outcome stays here until the ledger has returned its verdict. No offset moves before that, even
after an error.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.ports import Ledger, Settlement, Verdict
from docllm.agent.ports.outcome import Dead, Failure, Outcome, Succeeded
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.runtime import crash
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.result.codec import POINTER

# Bytes that a follow-up's rows add to a page, besides its line.
FOLLOW_UP_BYTES = 4 << 10


@dataclass(slots=True)
class Settled:
    """An outcome and the ledger's verdict about it."""

    delivery: Delivery
    outcome: Outcome
    verdict: Verdict


@dataclass(kw_only=True, eq=False)
class Settler:
    """Writes outcomes in pages; those that come during one write form the next page.

    A page begins when none is being written and a turn of the event loop brings no more outcomes.
    So pages grow with the load, and a single outcome waits for nothing. Up to `at_once` pages are
    written beside each other while whole pages wait. To the ledger they are as pages of two agents:
    rows are locked by id, and either may end first.
    """

    ledger: Ledger
    page_size: int
    page_bytes: int
    reply_limit_bytes: int
    own_orders: OwnOrders
    at_once: int = 1

    def __post_init__(self) -> None:
        self._waiting: deque[tuple[Delivery, Settlement]] = deque()
        self._writing = 0  # outcomes of the pages that are being written
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        """Settle the outcome of a claimed delivery with the next page."""
        row = delivery.row
        if row is None:
            raise AssertionError(f"task {delivery.task_id} has an outcome without a claim")
        settlement = Settlement(
            row, delivery.owner, self._fit(outcome), delivery.route, delivery.origin()
        )
        delivery.state = DeliveryState.SETTLING
        if not self._waiting and not self._writing:
            self._idle.clear()
        self._waiting.append((delivery, settlement))
        # With any other number, either a page has begun or no more of them may begin than before.
        if len(self._waiting) in {1, self.page_size} and self._may_begin():
            self._wake.set()

    @property
    def queued(self) -> int:
        """How many outcomes wait for the next page."""
        return len(self._waiting)

    @property
    def unsettled(self) -> int:
        """How many outcomes wait for the next page or are being written."""
        return len(self._waiting) + self._writing

    async def wait_until_idle(self) -> None:
        """Return once every outcome has its verdict."""
        await self._idle.wait()

    async def run(self, take_verdicts: Callable[[Sequence[Settled]], None]) -> None:
        """Write pages until cancelled, and hand each to `take_verdicts` with its verdicts.

        `take_verdicts` returns before the settler is idle, so a drain waits for it too.
        """
        writers = [
            asyncio.ensure_future(self._write_pages(take_verdicts)) for _ in range(self.at_once)
        ]
        try:
            await asyncio.gather(*writers)
        finally:
            for writer in writers:
                writer.cancel()

    async def _write_pages(self, take_verdicts: Callable[[Sequence[Settled]], None]) -> None:
        while True:
            while not self._may_begin():
                self._wake.clear()
                await self._wake.wait()
            await self._gather()
            if self._may_begin():
                await self._write(self._take_page(), take_verdicts)

    async def _gather(self) -> None:
        """Let a page grow while each turn of the event loop brings more outcomes."""
        before = 0
        while before < len(self._waiting) < self.page_size:
            before = len(self._waiting)
            await asyncio.sleep(0)

    def _may_begin(self) -> bool:
        """Return whether to begin a page. Beside another page, only a whole one is worth it."""
        return bool(self._waiting) and (not self._writing or len(self._waiting) >= self.page_size)

    def _take_page(self) -> list[tuple[Delivery, Settlement]]:
        page: list[tuple[Delivery, Settlement]] = []
        size = 0
        while self._waiting and len(page) < self.page_size and size < self.page_bytes:
            page.append(self._waiting.popleft())
            size += _size(page[-1][1].outcome)
        return page

    async def _write(
        self,
        page: Sequence[tuple[Delivery, Settlement]],
        take_verdicts: Callable[[Sequence[Settled]], None],
    ) -> None:
        self._writing += len(page)
        verdicts, orders = await self.ledger.settle([settlement for _, settlement in page])
        self._writing -= len(page)
        crash.reach("settle.committed")
        outcomes = [settlement.outcome for _, settlement in page]
        if [
            None for outcome in outcomes if type(outcome) is Succeeded and outcome.codec == POINTER
        ]:
            crash.reach("output.settled")
        take_verdicts(
            [
                Settled(delivery, settlement.outcome, verdict)
                for (delivery, settlement), verdict in zip(page, verdicts, strict=True)
            ]
        )
        self.own_orders.send(orders)
        if not self.unsettled:
            self._idle.set()

    def _fit(self, outcome: Outcome) -> Outcome:
        """Replace a reply that no statement can carry by an error; a reply is never cut short."""
        if type(outcome) is Succeeded and len(outcome.body) > self.reply_limit_bytes:
            text = (
                f"the stored reply has {len(outcome.body)} bytes, "
                f"the limit is {self.reply_limit_bytes}"
            )
            return Dead(Failure(ErrorClass.REPLY_TOO_LARGE, text), replace(outcome.spent))
        return outcome


def _size(outcome: Outcome) -> int:
    """Return how much an outcome adds to its transaction, in bytes."""
    if type(outcome) is not Succeeded:
        return 0
    size = len(outcome.body)
    for follow_up in outcome.follow_ups:
        size += len(follow_up.value) + FOLLOW_UP_BYTES
    return size
