"""An agent's duty towards guards, and batches that fail as a whole."""

from collections.abc import Sequence

from docllm.agent.execution.guard_gate import GuardGate
from docllm.agent.judge import Effect
from docllm.agent.ledger.guards import looks
from docllm.agent.maintenance.waits.guard_keeper import GuardKeeper
from docllm.agent.ports import Order
from docllm.agent.routes.evidence import RouteEvidence
from docllm.agent.routes.probe_sender import ProbeSender
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.ledger import tables
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.task.guard import Guard
from docllm.schemas.task.states import Status
from tests.contract.guards.steps import ROUTE, claimed, ended, exhausted, raised
from tests.support.doubles import double_of
from tests.support.ledger_database import GROUP, LONGEST, SUCCEEDED, LedgerDatabase
from tests.support.slots import LookLedger

PROBE_S = 300.0


def _routes_of(value: bytes) -> list[str]:
    if b"falls back" in value:
        return ["another", ROUTE]
    return ["another"] if b"another" in value else [ROUTE]


class ObservedKeeper:
    """The guard keeper of one agent, and what it did."""

    def __init__(self, ledger_db: LedgerDatabase, *, answers: bool = True) -> None:
        self.orders: list[Order] = []
        self.asked: list[str] = []
        self.answers = answers
        self.guards = GuardGate(
            clock=SystemClock(), longest_tier=LONGEST, ledger=LookLedger(self._join_look)
        )
        self.keeper = GuardKeeper(
            transactions=ledger_db.transactions,
            clock=SystemClock(),
            group=GROUP,
            gate=self.guards,
            probe_s=PROBE_S,
            probe_sender=double_of(ProbeSender, send_prompt=self._ask),
            routes_of=_routes_of,
            own_orders=double_of(OwnOrders, send=self._ordered),
        )
        self._ledger_db = ledger_db

    async def keep_once(self) -> None:
        """Make one pass, and wait for the prompts that it sent."""
        await self.keeper.keep_once()
        for prompt in list(self.keeper._prompts):
            await prompt

    async def _ask(self, route: str, _limit_s: float) -> RouteEvidence:
        self.asked.append(route)
        return RouteEvidence(Effect.UP if self.answers else Effect.NONE)

    async def _join_look(self, guard_id: int, task_id: int) -> bool:
        return self._ledger_db.run(lambda c: looks.join_look(c, guard_id, task_id))

    def _ordered(self, orders: Sequence[Order]) -> None:
        self.orders += orders

    def guard_of(self, ledger_db: LedgerDatabase, batch: str) -> Guard | None:
        """Return the guard that stops a fresh task of a batch."""
        ((row, _),) = claimed(ledger_db, 1, into=batch)
        return self.guards.guard_of(row, ROUTE)

    @property
    def called(self) -> list[int]:
        """Return the tasks whose records were ordered."""
        assert {order.destination for order in self.orders} <= {"tasks"}
        return [item.id for order in self.orders for item in order.items]


def fail_as_a_whole(ledger_db: LedgerDatabase, count: int = 12) -> list[int]:
    """Raise the guard of the batch; return the tasks that it moved."""
    failing = claimed(ledger_db, count)
    ended(ledger_db, claimed(ledger_db, 1, into="healthy"), SUCCEEDED)
    ended(ledger_db, failing, *[exhausted()] * count)
    return [row.task_id for row, _ in failing if ledger_db.status(row.task_id) is Status.RETRYING]


def patient(ledger_db: LedgerDatabase) -> None:
    """Put the guard's time back by longer than a place in a look is kept for tasks in hand."""
    ledger_db.ago(tables.guard.c.probe_at, 4)


async def looking(ledger_db: LedgerDatabase, keeper: ObservedKeeper) -> Guard:
    """Let a guard's look begin, by a route that answers or by a success on it."""
    await keeper.keep_once()
    guard = the(raised(ledger_db))
    assert guard.looking
    return guard


def the(raised_guards: Sequence[Guard]) -> Guard:
    (guard,) = raised_guards
    return guard


def let_through(ledger_db: LedgerDatabase, *task_ids: int) -> None:
    """Let these tasks join the look that is under way, and make them due."""
    guard = the(raised(ledger_db))
    for task_id in task_ids:
        assert ledger_db.call(looks.join_look, guard.id, task_id)
    ledger_db.ago(tables.task.c.due_at, 1, *task_ids)


def run_in_look(
    ledger_db: LedgerDatabase, task_id: int, *outcome: object, route: str = ROUTE
) -> None:
    """Claim the task as an agent does, and end it with this outcome."""
    owner = ledger_db.agent().next_owner()
    row = ledger_db.claimed(task_id, owner, fence=ledger_db.task(task_id).fence)
    ended(ledger_db, [(row, owner)], *outcome, route=route)  # type: ignore[arg-type]


async def whole_look(
    ledger_db: LedgerDatabase, keeper: ObservedKeeper, task_ids: Sequence[int], outcome: object
) -> int:
    """Run the next look with the first of these tasks; return how many tasks it had.

    The look begins now, whenever it is due. Each task gets the same outcome, and then the look
    ends.
    """
    ledger_db.ago(tables.guard.c.probe_at, 1)
    guard = await looking(ledger_db, keeper)
    chosen = task_ids[: guard.look_left]
    let_through(ledger_db, *chosen)
    for task_id in chosen:
        run_in_look(ledger_db, task_id, outcome)
    ledger_db.set(tables.guard, guard.id, look_left=0)
    await keeper.keep_once()
    return len(chosen)


async def look_at(ledger_db: LedgerDatabase, keeper: ObservedKeeper) -> object:
    (row,) = ledger_db.rows(tables.guard)
    return row.called_at
