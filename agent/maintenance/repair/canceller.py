"""The duty that continues cancels."""

from collections.abc import Callable
from datetime import datetime

from docllm.agent.ledger import open_work
from docllm.agent.ledger.leases import leasing
from docllm.producer.ledger import cancel
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash


class Canceller:
    """Cancels waiting tasks of cancelled batches until no task of them is open.

    A cancel may have been interrupted, or tasks may have escaped it by running. No task can be
    added to a cancelled batch. Each time, `ask_about_batches` gets the names of all cancelled
    batches, because this agent's deliveries of such batches need not wait any longer.
    """

    def __init__(
        self,
        *,
        transactions: Transactions,
        group: str,
        ask_about_batches: Callable[[frozenset[str]], None],
    ) -> None:
        self._transactions = transactions
        self._group = group
        self._ask_about_batches = ask_about_batches
        self._done: frozenset[tuple[int, str, datetime]] = frozenset()

    async def cancel(self) -> None:
        """Cancel what waits in cancelled batches."""
        cancelled = await self._transactions.write(leasing.cancelled, self._group)
        self._done &= cancelled
        for batch_id, name, cancelled_at in sorted(cancelled - self._done):
            more_wait = True
            while more_wait:
                _, more_wait = await self._transactions.write(cancel.cancel_page, batch_id)
                crash.reach("cancel.page_cancelled")
            if not await self._transactions.write(open_work.open_in, batch_id):
                self._done |= {(batch_id, name, cancelled_at)}
        self._ask_about_batches(frozenset(name for _, name, _ in cancelled))
