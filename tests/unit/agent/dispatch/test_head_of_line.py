"""A task that blocks a wide span, running or waiting for long, gets a replacement record."""

import asyncio
from collections.abc import Sequence

import pytest

from docllm.agent.dispatch.head_of_line import LONG_S, HeadOfLine
from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.ports import Claimable, Order, Partition
from docllm.producer.ports import Item
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.task.record.envelope import Publication
from tests.support.doubles import double_of
from tests.support.ledger import new_row

WHERE = Partition("group.tasks", "id", 0, 1)
ORDER = Order(1, "group", "tasks", (Item(0, 5, 2),))
LIMITS = InFlightLimits()


def record(offset: int, digest: bytes | None, fence: int = 2) -> Delivery:
    return Delivery(
        partition=WHERE,
        offset=offset,
        timestamp_ms=0,
        publication=Publication(
            ledger="ledger", group="group", batch="batch", task_id=5, fence=fence
        ),
        value=b"value",
        digest=digest,
        route="route",
    )


def relieved(
    state: DeliveryState,
    answer: Order | None,
    *,
    first: Delivery | None = None,
    behind: Sequence[Delivery] = (),
    due_s: float = 1e6,
    almost: bool = True,
) -> tuple[Delivery, list[object], list[int]]:
    """Run head-of-line relief over a span that its first deliveries block.

    Return the blocking delivery, the ledger's calls, and the finished offsets.
    """
    table, asked = InFlightTable(limits=LIMITS), list[object]()
    delivery = first or record(3, b"ours")
    delivery.row = new_row(task_id=5, status=3, fence=2)
    table.add(delivery, 0.0, redelivered=False)
    if state is DeliveryState.DELAYED:
        table.delay(delivery, due_s)
    for record_behind in behind:
        table.add(record_behind, due_s, redelivered=False)
    delivery.state = state
    blocking = behind[0] if behind else delivery

    class Ledger:
        async def relieve(self, record: Claimable, fence: int, owner: int | None) -> Order | None:
            asked.append((record.publication.task_id, record.digest, fence, owner))
            return answer if record.digest != b"theirs" else None

    done: list[int] = []

    class Wide(Partitions):
        def blocking(self, finished: float) -> list[Delivery]:
            return [blocking] if almost or finished < LIMITS.finished_share else []

        def finish_record(self, partition: Partition, offset: int) -> None:
            done.append(offset)

    ordered: list[Order] = []
    relief = HeadOfLine(
        ledger=Ledger(),  # type: ignore[arg-type]
        partitions=Wide({}, limits=LIMITS),
        table=table,
        own_orders=double_of(OwnOrders, send=ordered.extend),
        limits=LIMITS,
    )
    asyncio.run(relief.relieve(0.0))
    assert ordered == ([answer] if done else [])
    return blocking, asked, done


@pytest.mark.parametrize("digest", [b"ours", None])
def test_a_copy_behind_a_running_task_is_finished(digest: bytes | None) -> None:
    """A copy behind a running task is finished; the replacement record stands for it."""
    delivery, asked, finished = relieved(DeliveryState.RUNNING, ORDER, behind=[record(4, digest)])

    assert (delivery.state, asked, finished) == (DeliveryState.ENDED, [(5, digest, 2, None)], [4])


def test_a_copy_behind_a_pointer_record_is_finished() -> None:
    """A copy behind a pointer record is finished: the ledger knows whether it is the task's."""
    assert relieved(
        DeliveryState.DELAYED, ORDER, first=record(3, None), behind=[record(4, b"ours")]
    )[2] == [4]


def test_one_order_stands_for_all_copies() -> None:
    """One order stands for all copies of a task.

    Hundreds of copies used to take an order and a record each, one at a time.
    """
    behind = [
        record(4, b"ours"),
        record(5, None),
        record(6, b"theirs"),
        record(7, b"ours", fence=3),
        record(8, b"ours", fence=1),
    ]

    assert sorted(relieved(DeliveryState.DELAYED, ORDER, behind=[])[2]) == [3]
    assert sorted(relieved(DeliveryState.DELAYED, ORDER, behind=behind)[2]) == [4, 5, 8]


@pytest.mark.parametrize(("due_s", "finished"), [(LONG_S - 1, []), (LONG_S + 1, [3])])
def test_many_that_wait_for_long_block_no_span(due_s: float, finished: list[int]) -> None:
    """Many tasks that wait for long do not block a span.

    If more than a fiftieth of a span waited for hours, no record used to be read past them.
    """
    assert relieved(DeliveryState.DELAYED, ORDER, due_s=due_s, almost=False)[2] == finished


def test_a_task_that_runs_is_left_while_many_behind_it_are_open() -> None:
    """A running task is left while many records behind it are open: it may end sooner."""
    assert relieved(DeliveryState.RUNNING, ORDER, almost=False)[2] == []


def test_a_record_that_only_names_a_task_is_not_relieved() -> None:
    """A foreign record is not relieved.

    The replacement record would have the task's value, and the foreign value would be lost.
    """
    delivery, asked, finished = relieved(
        DeliveryState.RUNNING, ORDER, behind=[record(4, b"theirs")]
    )

    assert (delivery.value, asked, finished) == (b"value", [(5, b"theirs", 2, None)], [])


def test_a_record_that_runs_ahead_of_the_ledger_is_relieved_at_the_ledgers_fence() -> None:
    """A record ahead of the ledger is relieved at the ledger's fence, lower after a restore."""
    delivery = record(3, b"ours", fence=9)

    assert relieved(DeliveryState.DELAYED, ORDER, first=delivery)[1:] == (
        [(5, b"ours", 2, None)],
        [3],
    )


def test_a_record_that_was_never_claimed_is_left() -> None:
    """A record that was never claimed is left, because it will be claimed in a moment."""
    first, second = record(3, b"ours"), record(4, b"theirs")
    table = InFlightTable(limits=LIMITS)
    for delivery in (first, second):
        table.add(delivery, 0.0, redelivered=False)

    assert [table.is_own(first), table.is_own(second)] == [None, None]


def test_a_task_that_waits_for_long_is_relieved() -> None:
    """A task that waits for long is relieved: a provider may ask for a wait of a day.

    The partition is read on, and the new record stands for the task.
    """
    delivery, asked, finished = relieved(DeliveryState.DELAYED, ORDER)

    assert (delivery.state, asked, finished) == (DeliveryState.ENDED, [(5, b"ours", 2, None)], [3])


def test_a_task_of_another_agent_is_left() -> None:
    """A task that another agent claimed is left: the ledger says that it does not wait."""
    delivery, asked, finished = relieved(DeliveryState.DELAYED, None)

    assert (delivery.state, asked, finished) == (DeliveryState.DELAYED, [(5, b"ours", 2, None)], [])


def test_a_task_that_is_about_to_run_is_left() -> None:
    """A task that is about to run is left: it will soon run, or no longer block."""
    delivery, asked, finished = relieved(DeliveryState.READY, ORDER)

    assert (delivery.state, asked, finished) == (DeliveryState.READY, [], [])
