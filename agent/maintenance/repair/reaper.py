"""The duty that resets the tasks of lost agents and those with overdue claims."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from docllm.agent.ledger.leases import leasing
from docllm.agent.ledger.recovery import losses, reaping
from docllm.agent.ledger.recovery.reaping import LostClaim
from docllm.agent.membership.heartbeat import Heartbeat
from docllm.agent.membership.life_locks import LifeLocks
from docllm.producer.tracing import names
from docllm.producer.tracing.spans import Span, SpanKind, Spans, inert, never_raising
from docllm.schemas.codes import Code
from docllm.schemas.ledger.database import Connection
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.record.trace import SpanId, attempt_span, trace_of
from docllm.schemas.text.wording import number_of

log = logging.getLogger(__name__)

# Reset every few seconds even if no further agent was lost, because a lost agent may still claim
# tasks.
REPEAT_S = 5.0


@dataclass(slots=True, kw_only=True, eq=False)
class Reaper:
    """Declares agents of a group lost, and resets the tasks of all agents that are gone.

    `ask_about_tasks_of` gets the gone agents' ids and asks the ledger about their tasks. The tasks
    must be free when the ledger is asked. So a round first declares agents lost, then resets their
    tasks, then reports the agents. `resets` counts the tasks by cause. `spans` gets the spans of
    attempts whose agent can no longer emit them; their ids are derived from task and claim.
    """

    transactions: Transactions
    clock: Clock
    group: str
    heartbeat: Heartbeat
    locks: LifeLocks | None
    ask_about_tasks_of: Callable[[frozenset[int]], None]
    resets: Counter[str] = field(default_factory=Counter)
    spans: Spans | None = None
    ledger_id: str = ""
    _gone: frozenset[int] = field(default=frozenset(), init=False)
    _newly_gone: frozenset[int] = field(default=frozenset(), init=False)
    _reset_at_s: float = field(default=-REPEAT_S, init=False)

    async def declare_lost_agents(self) -> None:
        """Declare agents lost whose process has ended or whose heartbeat is late."""
        self._newly_gone = frozenset()
        if self.locks is not None:
            await self._declare_by_locks(self.locks)
        declared, gone = await self.transactions.write(self._declare_by_heartbeats)
        if declared:
            crash.reach("reap.judged")
            log.warning(
                "declared lost: %s", number_of(declared, "agent"), extra={"code": Code.AGENT_LOST}
            )
        self._newly_gone, self._gone = gone - self._gone, gone

    async def reset(self) -> None:
        """Reset lost tasks if another agent is gone, otherwise every few seconds."""
        now_s = self.clock.now_s()
        if self._newly_gone or now_s - self._reset_at_s >= REPEAT_S:
            self._reset_at_s = now_s
            await self._reset_lost_tasks()

    async def report_gone(self) -> None:
        """Report the agents that are gone."""
        self.ask_about_tasks_of(self._gone)

    async def take_back_losses(self) -> None:
        """Undo the losses of tasks that were only beside a task that killed its agent."""
        while undone := await self.transactions.write(reaping.undo_losses, self.group):
            log.warning(
                "%d losses are undone: their tasks only ran beside a task that killed its agent",
                undone,
            )
            if undone < losses.PAGE:
                break

    def _declare_by_heartbeats(self, connection: Connection) -> tuple[int, frozenset[int]]:
        """Declare agents lost if this agent may claim; return how many, and all that are gone."""
        lease = self.heartbeat.current
        declared = 0
        if lease.may_claim(self.clock.now_s()):
            declared = leasing.declare_silent_agents(connection, lease.agent_id)
        return declared, leasing.gone(connection, self.group)

    async def _declare_by_locks(self, locks: LifeLocks) -> None:
        for agent_id, name in await self.transactions.write(leasing.alive, self.group):
            if locks.has_process_ended(agent_id) and await self.transactions.write(
                leasing.declare_lost, agent_id
            ):
                crash.reach("reap.judged")
                log.warning(
                    "agent %s (%d) is lost: its process has ended",
                    name,
                    agent_id,
                    extra={"code": Code.AGENT_LOST},
                )
                locks.remove(agent_id)

    async def _reset_lost_tasks(self) -> None:
        dead = 0
        for cause, find, reset in (
            ("lost", reaping.orphans, reaping.reset_orphans),
            ("overdue", reaping.overdue, reaping.reset_overdue),
        ):
            while task_ids := await self.transactions.write(find, self.group):
                tasks = await self.transactions.write(reset, self.group, task_ids)
                if self.spans is not None:
                    self._emit_spans(self.spans, tasks.taken)
                self.resets[cause] += len(tasks.taken)
                ended = tasks.dead + tasks.not_again
                if tasks.waiting or ended:
                    crash.reach("reap.reset")
                if tasks.not_again:
                    log.warning(
                        "%s of lost agents or with overdue claims may have finished, so they are "
                        'dead: on_loss of their types is "dead"',
                        number_of(tasks.not_again, "task"),
                        extra={"code": Code.AGENT_LOST},
                    )
                if tasks.waiting or tasks.dead:
                    log.warning(
                        "%s of lost agents or with overdue claims may run again, "
                        "%d died of their losses: %s",
                        number_of(tasks.waiting, "task"),
                        tasks.dead,
                        _named(tasks.taken),
                    )
                dead += tasks.dead
                if len(task_ids) < reaping.PAGE or not (tasks.waiting or ended):
                    break
        if dead:
            await self.take_back_losses()

    @never_raising()
    def _emit_spans(self, spans: Spans, claims: Sequence[LostClaim]) -> None:
        """Emit the spans of the attempts under these claims.

        If the lost agent is still alive and settles late, it emits the same span a second time.
        """
        end_s = self.clock.utc_s()
        for claim in claims:
            spans.emit(
                Span(
                    SpanId(
                        trace_of(self.ledger_id, claim.task_id),
                        attempt_span(claim.task_id, claim.owner),
                    ),
                    names.PROCESS,
                    SpanKind.CONSUMER,
                    min(claim.claimed_utc_s, end_s),
                    end_s,
                    {
                        names.OPERATION: names.PROCESS,
                        names.OPERATION_TYPE: names.PROCESS,
                        names.GROUP: inert(self.group),
                        names.TASK_ID: claim.task_id,
                        names.TYPE: inert(claim.type),
                        names.FENCE: claim.fence,
                        names.ATTEMPT: claim.counted_before,
                        names.OUTCOME: "lost",
                    },
                    error=ErrorClass.AGENT_LOST,
                )
            )


def _named(taken: Sequence[LostClaim]) -> str:
    """Return the first ids of these tasks; `docllm show` tells more of each."""
    ids = ", ".join(claim.key for claim in taken[: reaping.MAX_NAMED])
    left = len(taken) - reaping.MAX_NAMED
    return f"{ids} and {left:,} more" if left > 0 else ids
