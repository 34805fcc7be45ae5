"""Bugs of leases and of the reaper."""

from collections import deque
from dataclasses import replace
from math import inf
from typing import Any

from sqlalchemy import true, update

from docllm.agent import lease
from docllm.agent.execution.slots import Slots
from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.ledger.leases import leasing
from docllm.agent.ledger.recovery import on_loss, reaping
from docllm.agent.ledger.settlements import settling
from docllm.agent.ports.outcome import Released
from docllm.producer.ledger import outbox
from docllm.producer.ports import Item
from docllm.schemas.ledger.sql import utc_after, utc_now
from docllm.schemas.ledger.tables import agent, task
from tests.simulation.bugs.bug import Bug, replaced
from tests.simulation.bugs.stages import (
    AHEAD_REVOCATIONS,
    AHEAD_ZOMBIES,
    CUT_OFF,
    DATABASE_AWAY,
    ONCE,
    SLOW_REAPERS,
    ZOMBIES,
)


def _fence_raised_at_reap(connection: Any, group: str, rows: Any) -> None:
    values = {
        "status": 0,
        "due_at": utc_now(),
        "lease_losses": task.c.lease_losses + 1,
        "fence": task.c.fence + 1,
    }
    connection.execute(update(task).where(task.c.id.in_([row.id for row in rows])).values(**values))


def _loss_not_counted(connection: Any, group: str, rows: Any) -> None:
    values = {"status": 0, "due_at": utc_now()}
    connection.execute(update(task).where(task.c.id.in_([row.id for row in rows])).values(**values))
    outbox.place(connection, group, "tasks", [Item(outbox.TASK, row.id, row.fence) for row in rows])


def _not_taken_back(connection: Any, late: Any) -> None:
    """Leave the lost attempts of claims that settle late."""


def _cut_off_uncounted(connection: Any, accepted: Any) -> None:
    """Count no run that its own agent cut off."""


def _all_given_back_counted(outcome: Any) -> bool:
    return isinstance(outcome, Released)


def _lost_unwritten(connection: Any, rows: Any, why: str) -> None:
    """Write no lost attempt."""


def _no_amnesty(connection: Any, agent_id: int) -> int:
    late = update(agent).where(
        agent.c.lost_at.is_(None), agent.c.stopped_at.is_(None), agent.c.seen_at < utc_after(-12)
    )
    return int(connection.execute(late.values(lost_at=utc_now())).rowcount)


def _started_under_a_lease_without_end(self: Slots) -> None:
    for delivery in self._ahead:
        if delivery.lease is not None:
            delivery.lease = replace(delivery.lease, beaten_at_s=inf, is_lost=False)
    _START_AHEAD(self)


def _forgotten_ahead(self: Slots, is_over: Any = lambda _: True) -> None:
    self._ahead = deque(delivery for delivery in self._ahead if not is_over(delivery))


def _given_back(self: AttemptContext, why: str) -> Released:
    return Released(self.spent)


_START_AHEAD = Slots._start_ahead


BUGS = {
    "a task claimed ahead outlives its lease": Bug(
        "P4", replaced(Slots, "_start_ahead", _started_under_a_lease_without_end), AHEAD_ZOMBIES
    ),
    "what waits for a slot is forgotten, not given back": Bug(
        "P7", replaced(Slots, "give_back_ahead", _forgotten_ahead), AHEAD_REVOCATIONS
    ),
    "reaper without a second look": Bug("P7", replaced(reaping, "_GONE", true()), SLOW_REAPERS),
    "reap raises the fence": Bug("P1", replaced(reaping, "_requeue", _fence_raised_at_reap)),
    "a reap counts no loss": Bug("P2", replaced(reaping, "_requeue", _loss_not_counted)),
    "a reset writes no lost attempt": Bug("P2", replaced(reaping, "_write_lost", _lost_unwritten)),
    "a late settle leaves its loss": Bug(
        "P2", replaced(settling, "_take_back_losses", _not_taken_back), ZOMBIES
    ),
    "a run that is cut off counts no loss": Bug(
        "P2", replaced(settling, "_count_cut_off", _cut_off_uncounted), CUT_OFF
    ),
    "a claim that never began counts a loss": Bug(
        "P2", replaced(settling, "_was_cut_off", _all_given_back_counted), AHEAD_REVOCATIONS
    ),
    "a reaper lets a task run again that must not": Bug(
        "P4", replaced(on_loss, "not_again", lambda *_: []), ONCE
    ),
    "an agent gives back a run that must not be repeated": Bug(
        "P4", replaced(AttemptContext, "cut_off", _given_back), ONCE
    ),
    "every lease lets calls begin": Bug(
        "P4", replaced(lease.Lease, "may_call", lambda _self, _now_s: True), ZOMBIES
    ),
    "an agent is declared lost without amnesty": Bug(
        "P7", replaced(leasing, "declare_silent_agents", _no_amnesty), DATABASE_AWAY
    ),
    "an agent is declared lost after 4 s": Bug("P7", replaced(leasing, "LOST_AFTER_S", 4.0)),
}
