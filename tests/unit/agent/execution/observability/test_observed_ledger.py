"""What passes through the measured ports is counted, and the ledger is asked once in a second."""

import asyncio
from dataclasses import replace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from docllm.agent.execution.observability.observed_ledger import (
    SAMPLE_S,
    ObservedLedger,
)
from docllm.agent.ports import Claimable, ClaimAnswer, ClaimAnswers, Reply
from docllm.agent.reporting.metrics import AgentMetrics
from docllm.schemas.task.record.envelope import Publication
from tests.support.clock import HandClock
from tests.support.ledger import new_row

ROW = new_row(task_id=1, due_in_s=-40.0)


class Ledger:
    """A ledger in which the first task is claimable and the second one is claimed by others."""

    bodies = overrides = relieve = join_look = quarantine = settle = None

    def __init__(self) -> None:
        self.asked = 0

    async def ask(self, _records: object) -> ClaimAnswers:
        self.asked += 1
        running = replace(ROW, task_id=2, due_in_s=300.0)
        return {1: (ClaimAnswer.CLAIMABLE, ROW), 2: (ClaimAnswer.HELD, running)}

    async def claim(self, *_: object, **__: object) -> ClaimAnswers:
        return {1: (ClaimAnswer.CLAIMED, ROW), 2: (ClaimAnswer.CLAIMED, ROW)}


class Provider:
    """Answers with headers about its limits."""

    async def complete(self, _call: object) -> Reply:
        return Reply(200, {"x-ratelimit-remaining-tokens": "70"}, b"")


def record(task_id: int) -> Claimable:
    return Claimable(
        Publication(ledger="ledger", group="g", batch="batch", task_id=task_id, fence=0), None
    )


def shown(metrics: AgentMetrics) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sorted({*sample.labels.values()} - {"g"})): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def test_waits_are_those_of_tasks_that_were_claimable_and_claimed() -> None:
    """A wait is of the database's time; the deadline of a running claim is no wait."""
    metrics, ledger, clock = (
        AgentMetrics(group="g", routes=(), counters=(), gauges=()),
        Ledger(),
        HandClock(),
    )
    measured: Any = ObservedLedger(ledger, metrics=metrics, clock=clock)  # type: ignore[arg-type]

    for _ in range(3):
        asyncio.run(measured.claim([record(1), record(2)], 7, 60.0))

    assert shown(metrics)["docllm_task_wait_seconds_count",] == ledger.asked == 1
    assert shown(metrics)["docllm_task_wait_seconds_sum",] == 40
    assert shown(metrics)["docllm_claim_duration_seconds_count",] == 3
    clock.at_s += SAMPLE_S
    asyncio.run(measured.claim([record(1), record(2)], 7, 60.0))
    assert ledger.asked == 2
