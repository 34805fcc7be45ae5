"""Builds the duty that archives and purges old batches, if the settings ask for it."""

from collections.abc import Sequence

from docllm.agent.maintenance.duty import Duty, DutyLoop
from docllm.producer.app import Parts
from docllm.schemas.objects.output_stores import OutputStores
from docllm.schemas.objects.store import ObjectStores
from docllm.schemas.runtime.executors import Executor

CHECK_EVERY_S = 60.0


def make_retention_loops(parts: Parts, executor: Executor) -> Sequence[DutyLoop]:
    """Return the loop of the retention; none without the setting `retention.archive`.

    `executor` is a thread of its own, since a file takes seconds to make.
    """
    settings, clock = parts.config.retention, parts.clock
    if settings.archive is None:
        return ()
    # Most agents archive nothing.
    from docllm.agent.maintenance.cleanup.retainer import RENEW_S, Retainer  # noqa: PLC0415
    from docllm.producer.retention.archiver import Archiver  # noqa: PLC0415

    store = OutputStores(executor=executor, objects=ObjectStores(), allow=[settings.archive])
    retainer = Retainer(
        transactions=parts.transactions,
        clock=clock,
        group=parts.topics.group,
        settings=settings,
        archiver=Archiver(
            transactions=parts.transactions,
            executor=executor,
            store=store,
            ledger_id=parts.ledger_id,
            to=settings.archive,
        ),
        store=store,
    )
    duty = Duty(name="the retention", work=retainer.retain, clock=clock)
    renewal = Duty(name="keeping the retention's turn", work=retainer.keep_turn, clock=clock)
    return (duty.every(CHECK_EVERY_S), renewal.every(RENEW_S))
