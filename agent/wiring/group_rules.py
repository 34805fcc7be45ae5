"""Tells the group what this agent's settings say of tasks and batches, before it claims a task."""

from docllm.agent.ledger.recovery import on_loss
from docllm.agent.maintenance.duty import Duty, DutyLoop
from docllm.producer.app import Parts
from docllm.producer.ledger import hook_orders
from docllm.schemas.settings.config import Config
from docllm.schemas.task.hooks import OF_BATCHES

RENEW_EVERY_S = 3600.0


async def store_group_rules(parts: Parts, config: Config) -> None:
    """Store the types with `on_loss = "dead"`, and that batches have a hook.

    Most settings have neither.
    """
    write, group = parts.transactions.write, parts.topics.group
    if types := config.dead_on_loss:
        await write(on_loss.store, group, types)
    if config.on_batch_done is not None:
        await write(hook_orders.store_names, group, [OF_BATCHES])


def make_group_rules_duty(parts: Parts) -> DutyLoop:
    """Return the duty that stores them again, because the ledger forgets them after a day."""
    renewing = Duty(
        name="naming types that do not run twice",
        work=lambda: store_group_rules(parts, parts.config),
        clock=parts.clock,
    )
    return renewing.every(RENEW_EVERY_S)
