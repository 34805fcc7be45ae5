"""Waits until a batch is done, for cron jobs, CI and Python programs.

Each look costs four small statements, whatever the size of the batch, and one more if a task is
dead or cancelled.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from sqlalchemy import Connection, func, select

from docllm.producer.ledger import joins, replay_progress, store, tally
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.task.failures import TallyOutcome
from docllm.schemas.task.states import FINAL, Status

POLL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """How far a batch is.

    `loading`: its load has not ended. `replaying`: a replay that may add open tasks has not ended.
    `stopped`: its open tasks, if all of them are joins that wait for the replay of dead tasks.
    """

    total: int
    succeeded: int
    dead: int
    cancelled: int
    loading: bool = False
    replaying: bool = False
    stopped: int = 0

    @property
    def open(self) -> int:
        """How many tasks are not final."""
        return max(0, self.total - self.succeeded - self.dead - self.cancelled)

    @property
    def done(self) -> bool:
        """Whether no task runs or will run, unless somebody replays tasks."""
        return not (self.open > self.stopped or self.loading or self.replaying)


def read_progress(connection: Connection, group: str, name: str) -> BatchProgress:
    """Return how far a batch is. Raises ConfigError if the group has no such batch.

    The tasks are counted last: those that an ended load or replay made open are then seen.
    """
    batch = store.require_batch(connection, group, name)
    loading = store.is_half_loaded(connection, batch)
    replaying = any(
        run.request.selection.batch in {None, name}
        for run in replay_progress.unfinished(connection, group)
    )
    states = (int(Status.PENDING), *map(int, FINAL))
    counts = tally.counts(
        lambda column: [column["batch_id"] == batch.id, column["state"].in_(states)]
    )
    keys = counts.c.state, counts.c.outcome == TallyOutcome.LOADED
    numbers = dict.fromkeys(states, 0)
    query = select(*keys, func.sum(counts.c.delta)).group_by(*keys)
    for state, is_loaded, count in connection.execute(query):
        if is_loaded or state != Status.PENDING:
            numbers[state] += int(count)
    progress = BatchProgress(
        total=numbers[Status.PENDING],
        succeeded=numbers[Status.SUCCEEDED],
        dead=numbers[Status.DEAD],
        cancelled=numbers[Status.CANCELLED],
        loading=loading,
        replaying=replaying,
    )
    if not progress.open or not (progress.dead or progress.cancelled):
        return progress  # no join waits for a replay
    return replace(progress, stopped=joins.stopped_in(connection, batch.id, progress.open))


async def wait_for_batch(
    transactions: Transactions,
    group: str,
    name: str,
    *,
    clock: Clock,
    timeout_s: float | None = None,
    show: Callable[[BatchProgress], None] = lambda _progress: None,
) -> BatchProgress:
    """Return how far the batch is once it is done, or after `timeout_s`.

    `show` gets the progress after each look that finds the batch not done. While the database does
    not answer, the wait goes on. Raises ConfigError if the group has no such batch.
    """
    progress = await transactions.read(read_progress, group, name)
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while not progress.done:
                show(progress)
                await clock.sleep(POLL_S)
                progress = await transactions.read(read_progress, group, name)
    return progress
