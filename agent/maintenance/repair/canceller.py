"""The duty that continues cancels."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from docllm.agent.ledger import open_work
from docllm.agent.ledger.leases import leasing
from docllm.producer.ledger import cancel
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash


@dataclass(slots=True, kw_only=True, eq=False)
class Canceller:
    """Cancels waiting tasks of cancelled batches until no task of them is open.

    A cancel may have been interrupted, or tasks may have escaped it by running. No task can be
    added to a cancelled batch. Each time, `ask_about_batches` gets the names of all cancelled
    batches, because this agent's deliveries of such batches need not wait any longer.
    """

    transactions: Transactions
    group: str
    ask_about_batches: Callable[[frozenset[str]], None]
    _done: frozenset[tuple[int, str, datetime]] = field(default=frozenset(), init=False)

    async def cancel(self) -> None:
        """Cancel what waits in cancelled batches."""
        cancelled = await self.transactions.write(leasing.cancelled, self.group)
        self._done &= cancelled
        for batch_id, name, cancelled_at in sorted(cancelled - self._done):
            more_wait = True
            while more_wait:
                _, more_wait = await self.transactions.write(cancel.cancel_page, batch_id)
                crash.reach("cancel.page_cancelled")
            if not await self.transactions.write(open_work.open_in, batch_id):
                self._done |= {(batch_id, name, cancelled_at)}
        self.ask_about_batches(frozenset(name for _, name, _ in cancelled))
