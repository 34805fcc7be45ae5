"""Walks through a world: steps in random order, then an end without faults.

Every promise is checked after each step.
"""

from collections import Counter
from collections.abc import Callable

from docllm.agent.ledger.leases import leasing
from docllm.producer.ledger import outbox
from docllm.schemas.ledger import tables
from docllm.schemas.task.states import FINAL, WAITING, Status
from tests.contract.protocol.topics import LETTERS, BrokenError
from tests.contract.protocol.world import World
from tests.support.ledger_database import SUCCEEDED

# The weight of each step, chosen so that claims live long enough to be lost, reaped and superseded.
WEIGHTS: dict[Callable[[World], None], int] = {
    World.relay_orders: 5,
    World.claim: 8,
    World.settle: 3,
    World.commit: 2,
    World.due: 4,
    World.rebalance: 3,
    World.expire: 3,
    World.find: 1,
    World.reset: 1,
    World.declare_lost: 1,
    World.register_anew: 1,
    World.notice: 1,
    World.crash: 1,
    World.release_doubts: 1,
}
# One round of a world without faults: the repairs, and what a person has begun.
REPAIRS = (
    World.register_anew,
    World.end_claims,
    World.find,
    World.reset,
    World.cancel,
    World.sweep,
    World.relay_all,
    World.due,
)
ROUNDS = 12


class Promises:
    """The promises that hold in every state of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._before: dict[int, tuple[Status, int]] = {}

    def check(self) -> None:
        ledger_db = self._world.ledger_db
        results = Counter(row.task_id for row in ledger_db.rows(tables.task_result))
        for row in ledger_db.rows(tables.task):
            status = Status(row.status)
            self._moved(row.id, status, row.fence)
            if results[row.id] != (status is Status.SUCCEEDED):
                raise BrokenError("P2 status and result rows disagree")
            if (
                status in WAITING
                and not self._world.lossy
                and not self._has_record(row.id, row.fence)
            ):
                raise BrokenError("a waiting task has no record")

    def _moved(self, task_id: int, status: Status, fence: int) -> None:
        old_status, old_fence = self._before.get(task_id, (status, fence))
        if old_status in FINAL and status is not old_status:
            raise BrokenError("P1 a final state was left")
        if fence < old_fence:
            raise BrokenError("a fence went down")
        self._before[task_id] = (status, fence)

    def _has_record(self, task_id: int, fence: int) -> bool:
        orders = self._world.ledger_db.rows(tables.outbox)
        ordered = any(
            (outbox.TASK, task_id, fence) in outbox.unpack(order.items) for order in orders
        )
        return ordered or self._world.bus.carries(task_id, fence)


def walk(world: World, steps: int) -> None:
    """Take steps at random, then let everything end without faults."""
    promises = Promises(world)
    choices = dict(WEIGHTS)
    if world.cancels:
        choices[World.cancel] = 1
    if world.losses:
        choices |= {World.lose_records: 1, World.sweep: 1}
    for step in world.random.choices(list(choices), list(choices.values()), k=steps):
        step(world)
        promises.check()
    end(world, promises)


def end(world: World, promises: Promises) -> None:
    """Go on without faults until everything has ended.

    Every task is final, no order is left, every dead task has its dead letter, and all offsets are
    committed.
    """
    world.notice()
    world.bus.delivery = "delivered"
    for _ in range(ROUNDS):
        work_off(world)
        world.commit()
        promises.check()
        if not unfinished(world):
            return
        for lease in world.dead_leases:
            world.ledger_db.call(leasing.declare_lost, lease.agent_id)
        for step in REPAIRS:
            step(world)
    raise BrokenError(unfinished(world))


def work_off(world: World) -> None:
    """Settle every call as a success, then claim and settle every task that can be claimed."""
    for agent in world.agents:
        while agent.runs:
            world.settle_one(agent, agent.runs[0], SUCCEEDED)
        for view in agent.views:
            world.bus.read(view)
            for offset in list(view.records):
                world.claim_one(agent, view, offset)
                while agent.runs:
                    world.settle_one(agent, agent.runs[0], SUCCEEDED)


def unfinished(world: World) -> str:
    """Return what keeps a world from its end; empty when nothing does."""
    states = {row.id: Status(row.status) for row in world.ledger_db.rows(tables.task)}
    orders = world.ledger_db.count(tables.outbox)
    if orders or not set(states.values()) <= set(FINAL):
        return f"P1 stuck: {states}, {orders} orders left"
    letters = {record[0] for record in world.bus.logs[LETTERS] if record}
    if letters != {task_id for task_id, status in states.items() if status is Status.DEAD}:
        return "P8 deaths and letters disagree"
    return "" if world.bus.at_end() else "P3 the offsets do not reach the ends"
