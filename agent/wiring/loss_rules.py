"""Tells the group which types do not run twice, before this agent claims their tasks."""

from docllm.agent.ledger.recovery import on_loss
from docllm.agent.maintenance.duty import Duty, DutyLoop
from docllm.producer.app import Parts
from docllm.schemas.settings.config import Config

RENEW_EVERY_S = 3600.0


async def store_loss_rules(parts: Parts, config: Config) -> None:
    """Store the types with `on_loss = "dead"`, of which most settings have none."""
    if types := config.dead_on_loss:
        await parts.transactions.write(on_loss.store, parts.topics.group, types)


def make_loss_rules_duty(parts: Parts) -> DutyLoop:
    """Return the duty that stores the types again, because the ledger forgets them after a day."""
    renewing = Duty(
        name="naming types that do not run twice",
        work=lambda: store_loss_rules(parts, parts.config),
        clock=parts.clock,
    )
    return renewing.every(RENEW_EVERY_S)
