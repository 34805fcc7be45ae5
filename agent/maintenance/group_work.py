"""Whether the work of a group is done, by the ledger and the bus."""

from collections.abc import Sequence
from dataclasses import dataclass

from docllm.agent.ledger import open_work
from docllm.agent.reporting.telemetry import dead_lines
from docllm.agent.reporting.views import Note
from docllm.producer.ledger import hook_orders, joins, outbox, replay_progress, store
from docllm.producer.ports import TopicAdmin
from docllm.producer.publishing.relay import Relay
from docllm.schemas.codes import Code
from docllm.schemas.errors import UnreachableError
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.task.record.topics import Topics
from docllm.schemas.task.waits import DEAD, WaitReason


@dataclass(slots=True, kw_only=True, eq=False)
class GroupWork:
    """The work of one group."""

    transactions: Transactions
    relay: Relay
    admin: TopicAdmin
    topics: Topics
    reads_inbox: bool

    async def any_open_task(self) -> bool:
        """Return whether a task of the group is open, or a replay is to open one.

        A join is left out that waits for the replay of a dead task.
        """
        # Replays are read first: tasks that they made pending before they ended are then seen.
        if await self.transactions.read(replay_progress.any_unfinished, self.topics.group):
            return True
        return await self.transactions.read(
            open_work.any_open_task, self.topics.group
        ) or await self.transactions.read(joins.any_ended, self.topics.group)

    async def drop_final_orders(self) -> None:
        """Delete the publish orders whose tasks are all final."""
        await self.relay.drop_final()

    async def count_orders(self) -> int:
        """Return how many publish orders are left."""
        return int((await self.transactions.read(outbox.waiting, self.topics.group)).orders)

    async def any_work(self) -> bool:
        """Return whether the group has or ever had tasks, a replay, or records in its inbox."""
        group = self.topics.group
        if await self.transactions.read(open_work.any_batch, group) or await self.transactions.read(
            replay_progress.any_unfinished, group
        ):
            return True
        if not self.reads_inbox:
            return False
        reader, topic = self.topics.consumer_group("inbox"), self.topics.name("inbox")
        try:
            return (await self.admin.backlog(reader, [topic])).lag > 0
        except UnreachableError:
            return True  # an agent that cannot read this stays

    async def any_dead(self) -> bool:
        """Return whether a task of the group is dead, or a join waits for the replay of one."""
        from docllm.producer.ledger.dead_letters import error_groups  # noqa: PLC0415 - at the end

        return await self.transactions.read(error_groups.any_dead, self.topics.group) or bool(
            await self.transactions.read(joins.stopped, self.topics.group)
        )

    async def notes(self, *, dead_lately: int) -> Sequence[Note]:
        """Return warnings for a person who believes that all work is done.

        The person knows of the tasks that died lately.
        """
        from docllm.producer.ledger.status import group_status  # noqa: PLC0415 - at the end

        group = self.topics.group
        loads = map(
            store.half_loaded_message, await self.transactions.read(store.half_loaded, group)
        )
        status = await self.transactions.read(group_status.read_group, group)
        dead = {batch.name: batch.counts["dead"] for batch in status.batches}
        record_lines = [status.quarantined_text] if status.quarantined else []
        hook_lines = [
            text
            for of in (hook_orders.given_up, hook_orders.to_be_tried)
            for text in await self.transactions.read(of, group)
        ]
        stopped = WaitReason.CHILDREN, DEAD
        join_lines = [wait.text for wait in status.waiting if (wait.reason, wait.key) == stopped]
        task_lines = dead_lines(group, dead, dead_lately=dead_lately)
        return [
            *(Note(text, Code.LOAD_UNFINISHED) for text in loads),
            *(Note(text, Code.HOOKS_GIVEN_UP) for text in hook_lines),
            *(Note(text, Code.TASKS_DEAD) for text in (*task_lines, *join_lines)),
            *(Note(text, Code.RECORD_QUARANTINED) for text in record_lines),
        ]
