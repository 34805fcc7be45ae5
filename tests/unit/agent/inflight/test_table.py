"""An agent has one active delivery for each task, and none of its records vanishes."""

from dataclasses import replace

import pytest

from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.ports import Partition, Row
from docllm.agent.ports.outcome import Spent, Succeeded
from docllm.schemas.task.owner import owner_of
from docllm.schemas.task.record.envelope import Publication
from docllm.schemas.task.record.lanes import Lane
from docllm.schemas.task.result.codec import COMPLETION
from tests.support.ledger import new_row

PARTITION = Partition("group.tasks", "id", 0, 1)
LIMITS = InFlightLimits()
ANSWER = Succeeded(b"answer", COMPLETION, Spent())


def new_delivery(
    task_id: int,
    offset: int = 0,
    value: bytes | None = b"body",
    fence: int = 0,
    digest: bytes = b"d" * 16,
) -> Delivery:
    return Delivery(
        partition=PARTITION,
        offset=offset,
        timestamp_ms=0,
        publication=Publication(
            ledger="ledger", group="group", batch="batch", task_id=task_id, fence=fence
        ),
        value=value,
        digest=digest,
        route="route",
    )


def room(_route: str) -> int:
    """Return room for any number of calls of a route."""
    return 1000


def owned_by(task_id: int, agent_id: int) -> Row:
    return new_row(task_id=task_id, status=1, owner=owner_of(agent_id, 1), task_key=b"key")


def test_a_new_record_is_claimed_and_a_redelivered_one_asked_about() -> None:
    """A new record is claimed without a question; a redelivered one may be settled already."""
    table = InFlightTable(limits=LIMITS)
    fresh, again = new_delivery(1), new_delivery(2)
    table.add(fresh, 0.0, redelivered=False)
    table.add(again, 0.0, redelivered=True)

    assert table.waiting_in(Lane.NORMAL) == 2
    assert table.take_ready(10, room) == [fresh]
    assert table.take_to_ask(0.0, 10) == [again]
    assert (fresh.state, table.waiting_in(Lane.NORMAL)) == (DeliveryState.CLAIMING, 0)


def test_a_lane_waits_for_its_own_questions_only() -> None:
    """Else a bulk lane that is delivered again would stop the reading of urgent tasks."""
    table = InFlightTable(limits=LIMITS, lanes={PARTITION.topic: Lane.BULK})
    table.add(new_delivery(1), 0.0, redelivered=True)

    assert (table.waiting_in(Lane.BULK), table.waiting_in(Lane.URGENT)) == (1, 0)


def test_older_deliveries_are_claimed_before_newer_ones() -> None:
    """A task that a dead agent left behind does not queue up behind a thousand others."""
    table = InFlightTable(limits=LIMITS)
    later, waited = new_delivery(1), new_delivery(2)
    table.add(later, 0.0, redelivered=False)
    table.add(waited, 0.0, redelivered=True)
    (asked,) = table.take_to_ask(0.0, 10)

    table.queue_for_claim(asked, was_waiting=True)

    assert table.take_ready(10, room) == [waited, later]


def test_a_retry_that_is_read_late_is_claimed_before_new_tasks() -> None:
    """It has waited in its tier; a thousand new tasks would make it wait again."""
    table = InFlightTable(limits=LIMITS)
    retry = new_delivery(9)
    retry.publication = replace(retry.publication, counted_before=1)
    for delivery in (*map(new_delivery, range(3)), retry):
        table.add(delivery, 0.0, redelivered=False)

    assert table.take_ready(1, room) == [retry]


def test_two_records_of_one_task_are_never_in_one_claim() -> None:
    """A second record of a task waits behind the first, so one claim never has both.

    The ledger is asked about it when the first has ended.
    """
    table = InFlightTable(limits=LIMITS)
    first, second, third = new_delivery(1, 0), new_delivery(1, 1), new_delivery(1, 2)
    for delivery in (first, second, third):
        table.add(delivery, 0.0, redelivered=False)

    assert table.take_ready(10, room) == [first]
    assert table.take_ready(10, room) == table.take_to_ask(0.0, 10) == []
    table.remove(first)
    assert table.take_to_ask(0.0, 10) == [second]
    table.remove(second)
    assert table.take_to_ask(0.0, 10) == [third]
    table.remove(third)
    assert table._by_task == {}


@pytest.mark.parametrize(
    "other", [new_delivery(1, 4, fence=4), new_delivery(1, 4, fence=3, digest=b"f" * 16)]
)
def test_copies_are_taken_from_behind_an_entry(other: Delivery) -> None:
    """A record with a later fence or with other bytes is no copy, and keeps its place."""
    table = InFlightTable(limits=LIMITS)
    first, copy, gone, older = (
        new_delivery(1, offset, fence=fence) for offset, fence in enumerate((3, 3, 3, 2))
    )
    last = new_delivery(1, 5, fence=3)
    for delivery in (first, copy, gone, older, other, last):
        table.add(delivery, 0.0, redelivered=True)
    table.take_to_ask(0.0, 10)
    table.remove(gone)

    assert table.behind.take_copies(first, 3) == [copy, older, last]
    assert table.behind.take_copies(first, 3) == []
    table.remove(first)
    assert table.take_to_ask(0.0, 10) == [other]


def test_of_an_entry_without_its_body_only_others_without_one_are_copies() -> None:
    """For a pointer record, only other pointers are copies.

    The ledger is asked about queued records with a value of their own.
    """
    table = InFlightTable(limits=LIMITS)
    first, pointer = (
        Delivery(
            partition=PARTITION,
            offset=at,
            timestamp_ms=0,
            publication=Publication(
                ledger="ledger", group="group", batch="batch", task_id=1, fence=0
            ),
            value=None,
            digest=None,
            route="route",
        )
        for at in (0, 2)
    )
    second = new_delivery(1, 1)
    for delivery in (first, second, pointer):
        table.add(delivery, 0.0, redelivered=False)
    table.take_ready(1, room)
    table.delay(first, 1.0)

    assert table.behind.take_copies(first, 1000) == [pointer]
    table.remove(first)
    assert table.take_to_ask(0.0, 10) == [second]


def test_a_record_that_comes_later_has_the_first_one_asked_about() -> None:
    """A later record makes the ledger be asked about the first one, at once and once.

    For example, a task that waits for an hour was called up: its new record is behind the one that
    waits.
    """
    table = InFlightTable(limits=LIMITS)
    first, second, third = new_delivery(1, 0), new_delivery(1, 1), new_delivery(1, 2)
    table.add(first, 0.0, redelivered=False)
    table.take_ready(1, room)
    table.delay(first, 3600.0)

    table.add(second, 10.0, redelivered=False)
    table.add(third, 10.0, redelivered=False)

    assert table.take_to_ask(10.0, 10) == [first]
    assert table.take_to_ask(4000.0, 10) == []


@pytest.mark.parametrize("late", [True, False])
def test_copies_of_a_delivery_without_a_body_drop_theirs(*, late: bool) -> None:
    """Copies of a delivery without its body wait without theirs.

    An order that was sent twice would otherwise fill the memory for an hour. Different bytes are
    kept, because nobody else has them.
    """
    table = InFlightTable(limits=LIMITS)
    first, copy, other = (
        new_delivery(1, 0),
        new_delivery(1, 1),
        new_delivery(1, 2, digest=b"f" * 16),
    )
    table.add(first, 0.0, redelivered=False)
    table.take_ready(1, room)
    if late:
        table.delay(first, 3600.0)
    for delivery in (copy, other):
        table.add(delivery, 0.0, redelivered=False)
    if not late:
        table.delay(first, 3600.0)

    assert (first.value, copy.value, other.value) == (None, None, b"body")
    assert table.bodies_bytes == 4
    table.remove(first)
    assert table.take_to_ask(0.0, 10) == [copy]


def test_an_answer_that_was_paid_goes_with_its_entry() -> None:
    """A paid answer is dropped with its delivery, because nothing would settle it then."""
    table, delivery = InFlightTable(limits=LIMITS), new_delivery(1)
    table.add(delivery, 0.0, redelivered=False)
    table.kept_answers.keep(delivery, ANSWER)

    table.remove(delivery)

    assert delivery.kept_answer is None


def test_delayed_entries_that_are_due_are_asked_about_first() -> None:
    """Due deliveries of the delay queue share each question with new ones; neither kind starves."""
    table = InFlightTable(limits=LIMITS)
    delayed, new = (
        [new_delivery(number) for number in range(4)],
        [new_delivery(number) for number in range(10, 14)],
    )
    for delivery in delayed:
        table.add(delivery, 0.0, redelivered=True)
    for delivery in table.take_to_ask(0.0, 10):
        table.delay(delivery, 1.0)
    for delivery in new:
        table.add(delivery, 0.0, redelivered=True)

    assert table.take_to_ask(1.0, 4) == delayed[:2] + new[:2]
    assert table.take_to_ask(1.0, 4) == delayed[2:] + new[2:]


def test_waiting_entries_of_a_cancelled_batch_are_asked_about() -> None:
    """The entries may be delayed for a day, or ready for a route that stays closed."""
    table = InFlightTable(limits=LIMITS)
    delayed, ready, running = (new_delivery(task_id) for task_id in (1, 2, 3))
    for delivery in (delayed, running, ready):
        table.add(delivery, 0.0, redelivered=False)
    table.take_ready(2, room)
    table.delay(delayed, 86_400.0)

    assert table.ask_about_batches(frozenset({"another"})) == 0
    assert table.ask_about_batches(frozenset({delayed.publication.batch})) == 2
    assert table.take_to_ask(0.0, 10) == [delayed, ready]
    assert (table.waiting_in(Lane.NORMAL), table.take_to_ask(90_000.0, 10)) == (0, [])
    assert running.state is DeliveryState.CLAIMING


def test_all_waiting_records_are_asked_about_once_nothing_is_open() -> None:
    """A record in a tier may be outdated for an hour before it is due."""
    table = InFlightTable(limits=LIMITS)
    delayed, ready = new_delivery(1), new_delivery(2)
    for delivery in (delayed, ready):
        table.add(delivery, 0.0, redelivered=False)
    table.delay(delayed, 3600.0)

    assert table.ask_about_all() == 2
    assert table.take_to_ask(0.0, 10) == [delayed, ready]
    assert table.ask_about_all() == 0
