"""Outcomes are settled in pages, and each comes back with its verdict."""

import asyncio
from collections.abc import Sequence

import pytest

from docllm.agent.execution.settler import FOLLOW_UP_BYTES, Settled, Settler
from docllm.agent.ports import Ledger, Order, Settlement, Verdict
from docllm.agent.ports.outcome import Dead, FollowUp, Outcome, Released, Spent, Succeeded
from docllm.producer.ports import Item
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.ledger.database import Stopped
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.record.lanes import Lane
from tests.support.doubles import double_of
from tests.support.slots import claimed

ORDER = Order(1, "g", "tasks", (Item(0, 7, 0),))


class SettlerHarness:
    """A settler of groups of two over a ledger that settles everything."""

    def __init__(self, *, page_size: int = 2, page_bytes: int = 1 << 20) -> None:
        self.groups: list[list[int]] = []
        self.outcomes: list[Outcome] = []
        self.sent: list[Order] = []
        self.settled: list[Settled] = []
        self.settler = Settler(
            ledger=double_of(Ledger, settle=self._settle),
            page_size=page_size,
            page_bytes=page_bytes,
            reply_limit_bytes=10,
            own_orders=double_of(OwnOrders, send=self.sent.extend),
        )

    async def _settle(self, settlements: Sequence[Settlement]) -> tuple[list[Verdict], list[Order]]:
        assert self.settler.queued + len(settlements) == self.settler.unsettled
        self.groups.append([settlement.row.task_id for settlement in settlements])
        self.outcomes += [settlement.outcome for settlement in settlements]
        return [Verdict.SETTLED for _ in settlements], [ORDER]

    def run(self, *outcomes: Outcome) -> None:
        """Settle these outcomes, of the tasks 0, 1, ... in turn."""
        asyncio.run(self._run(outcomes))

    async def _run(self, outcomes: Sequence[Outcome]) -> None:
        running = asyncio.create_task(self.settler.run(self.settled.extend))
        for task_id, outcome in enumerate(outcomes):
            self.settler.settle(claimed(task_id, 0.0), outcome)
        await self.settler.wait_until_idle()
        running.cancel()


def test_outcomes_are_settled_in_groups_in_their_order() -> None:
    """Each group is small enough for one transaction."""
    harness = SettlerHarness()

    harness.run(Released(), Released(), Released())

    assert harness.groups == [[0, 1], [2]]
    assert [(settled.delivery.task_id, settled.verdict) for settled in harness.settled] == [
        (task_id, Verdict.SETTLED) for task_id in range(3)
    ]
    assert harness.settler.unsettled == 0


async def test_a_group_grows_while_each_turn_of_the_loop_brings_an_outcome() -> None:
    """One transaction for many tasks costs less, and nothing is waited for that is not there."""
    harness = SettlerHarness(page_size=10)
    running = asyncio.create_task(harness.settler.run(harness.settled.extend))
    for task_id in range(6):
        harness.settler.settle(claimed(task_id, 0.0), Released())
        await asyncio.sleep(0)
    await harness.settler.wait_until_idle()
    harness.settler.settle(claimed(6, 0.0), Released())
    await harness.settler.wait_until_idle()
    running.cancel()

    assert harness.groups == [[0, 1, 2, 3, 4, 5], [6]]


class SlowLedger:
    """A settler of groups of two over a ledger that answers a group when a test says so."""

    def __init__(self, *, at_once: int) -> None:
        self.answers: dict[tuple[int, ...], asyncio.Future[list[Verdict]]] = {}
        self.settled: dict[int, Verdict] = {}
        self.settler = Settler(
            ledger=double_of(Ledger, settle=self._settle),
            page_size=2,
            page_bytes=1 << 20,
            reply_limit_bytes=10,
            own_orders=double_of(OwnOrders, send=lambda _: None),
            at_once=at_once,
        )

    async def _settle(self, settlements: Sequence[Settlement]) -> tuple[list[Verdict], list[Order]]:
        group = tuple(settlement.row.task_id for settlement in settlements)
        self.answers[group] = asyncio.get_running_loop().create_future()
        return await self.answers[group], []

    def take(self, settled: Sequence[Settled]) -> None:
        self.settled |= {ended.delivery.task_id: ended.verdict for ended in settled}

    async def end(self, *task_ids: int) -> None:
        """Let these attempts end, then let the settler do what it can."""
        for task_id in task_ids:
            self.settler.settle(claimed(task_id, 0.0), Released())
        await quiet()

    async def answer(self, group: tuple[int, ...], verdict: Verdict) -> None:
        self.answers[group].set_result([verdict] * len(group))
        await quiet()


async def quiet() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_group_begins_at_once_and_whole_groups_beside_it() -> None:
    """One outcome is enough while nothing is written; beside a group, only a whole one begins.

    At most two groups are written at once, and on SQLite one.
    """

    async def groups(at_once: int) -> list[list[tuple[int, ...]]]:
        slow = SlowLedger(at_once=at_once)
        running = asyncio.create_task(slow.settler.run(slow.take))
        begun = []
        for ended in ((0,), (1,), (2,), (3, 4, 5, 6)):
            await slow.end(*ended)
            begun.append(list(slow.answers))
        running.cancel()
        return begun

    one = [[(0,)]] * 4
    assert asyncio.run(groups(1)) == one
    assert asyncio.run(groups(2)) == [*one[:2], [(0,), (1, 2)], [(0,), (1, 2)]]


async def test_a_group_that_overtakes_another_has_its_own_verdicts() -> None:
    """The settler is idle only when both have theirs."""
    slow = SlowLedger(at_once=2)
    running = asyncio.create_task(slow.settler.run(slow.take))
    await slow.end(0)
    await slow.end(1, 2)
    await slow.answer((1, 2), Verdict.SUPERSEDED)
    idle = asyncio.create_task(slow.settler.wait_until_idle())
    await quiet()

    assert slow.settled == {1: Verdict.SUPERSEDED, 2: Verdict.SUPERSEDED}
    assert not idle.done()

    await slow.answer((0,), Verdict.SETTLED)
    await idle
    running.cancel()

    assert slow.settled[0] is Verdict.SETTLED
    assert slow.settler.unsettled == 0


def test_an_error_of_either_group_ends_the_settler() -> None:
    async def failed() -> None:
        slow = SlowLedger(at_once=2)
        running = asyncio.create_task(slow.settler.run(slow.take))
        await slow.end(0)
        await slow.end(1, 2)
        slow.answers[1, 2].set_exception(Stopped)
        await running

    with pytest.raises(Stopped):
        asyncio.run(failed())


def test_the_orders_of_each_group_are_sent() -> None:
    harness = SettlerHarness()

    harness.run(Released(), Released(), Released())

    assert harness.sent == [ORDER] * 2


def test_large_answers_make_small_groups() -> None:
    """A group ends with the answer that fills it, so a statement does not grow without limit."""
    harness = SettlerHarness(page_bytes=5)

    harness.run(*[Succeeded(b"123456", 0, Spent())] * 2)

    assert harness.groups == [[0], [1]]


def test_many_follow_ups_make_small_groups() -> None:
    """Each is several rows of the transaction, and its line counts too."""
    follow_up = FollowUp(
        key="k",
        value=b"line",
        type="document",
        tenant="default",
        max_attempts=5,
        deadline=None,
        lane=Lane.NORMAL,
    )
    outcome = Succeeded(b"1", 0, Spent(), (follow_up,) * 2)

    for page_bytes, groups in ((2 * FOLLOW_UP_BYTES, [[0], [1]]), (1 << 20, [[0, 1]])):
        harness = SettlerHarness(page_bytes=page_bytes)
        harness.run(outcome, outcome)
        assert harness.groups == groups


def test_an_answer_that_no_statement_can_carry_is_an_error() -> None:
    """Such an answer is never cut short; its cost is kept."""
    spent = Spent(tokens_in=3)
    harness = SettlerHarness()

    harness.run(Succeeded(b"12345678901", 0, spent))

    (outcome,) = harness.outcomes
    assert isinstance(outcome, Dead)
    assert (outcome.failure.error_class, outcome.spent) == (ErrorClass.REPLY_TOO_LARGE, spent)
