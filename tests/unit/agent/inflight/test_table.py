"""An agent has one active delivery for each task, and none of its records vanishes."""

import pytest

from agent.inflight.delivery import Delivery, DeliveryState
from agent.inflight.limits import Limits
from agent.inflight.table import InFlightTable
from agent.lease import OWNER_BITS
from agent.outcome import COMPLETION, Spent, Succeeded
from agent.ports import Partition, Row
from schemas.task.envelope import Publication

PARTITION = Partition("group.tasks", "id", 0, 1)
LIMITS = Limits()


def entry(
    task_id: int,
    offset: int = 0,
    value: bytes | None = b"body",
    fence: int = 0,
    digest: bytes = b"d" * 16,
) -> Delivery:
    return Delivery(
        PARTITION,
        offset,
        0,
        Publication("ledger", "group", "batch", task_id, fence),
        value,
        digest,
        "route",
    )


def room(_route: str) -> int:
    """Return room for any number of calls of a route."""
    return 1000


def owned_by(task_id: int, agent_id: int) -> Row:
    # A row as it is read.
    return Row(
        task_id,
        1,
        1,
        agent_id << OWNER_BITS | 1,
        0,
        0,
        5,
        0,
        0.0,
        False,  # noqa: FBT003
        "document",
        b"key",
        "batch",
    )


def test_a_new_record_is_claimed_and_a_redelivered_one_asked_about() -> None:
    """A new record is claimed without a question; a redelivered one may be settled already."""
    entries = InFlightTable(limits=LIMITS)
    fresh, again = entry(1), entry(2)
    entries.arrive(fresh, 0.0, redelivered=False)
    entries.arrive(again, 0.0, redelivered=True)

    assert entries.waiting == 2
    assert entries.take_ready(10, room) == [fresh]
    assert entries.take_to_ask(0.0, 10) == [again]
    assert (fresh.state, entries.waiting) == (DeliveryState.CLAIMING, 0)


def test_older_deliveries_are_claimed_before_newer_ones() -> None:
    """A task that a dead agent left behind does not queue up behind a thousand others."""
    entries = InFlightTable(limits=LIMITS)
    later, waited = entry(1), entry(2)
    entries.arrive(later, 0.0, redelivered=False)
    entries.arrive(waited, 0.0, redelivered=True)
    (asked,) = entries.take_to_ask(0.0, 10)

    entries.ready(asked, back=True)

    assert entries.take_ready(10, room) == [waited, later]


def test_two_records_of_one_task_are_never_in_one_claim() -> None:
    """A second record of a task waits behind the first, so one claim never has both.

    The ledger is asked about it when the first has ended.
    """
    entries = InFlightTable(limits=LIMITS)
    first, second, third = entry(1, 0), entry(1, 1), entry(1, 2)
    for one in (first, second, third):
        entries.arrive(one, 0.0, redelivered=False)

    assert entries.take_ready(10, room) == [first]
    assert entries.take_ready(10, room) == entries.take_to_ask(0.0, 10) == []
    entries.end(first)
    assert entries.take_to_ask(0.0, 10) == [second]
    entries.end(second)
    assert entries.take_to_ask(0.0, 10) == [third]
    entries.end(third)
    assert entries._by_task == {}


@pytest.mark.parametrize("other", [entry(1, 4, fence=4), entry(1, 4, fence=3, digest=b"f" * 16)])
def test_copies_are_taken_from_behind_an_entry(other: Delivery) -> None:
    """A record with a later fence or with other bytes is no copy, and keeps its place."""
    entries = InFlightTable(limits=LIMITS)
    first, copy, gone, older = (
        entry(1, offset, fence=fence) for offset, fence in enumerate((3, 3, 3, 2))
    )
    last = entry(1, 5, fence=3)
    for one in (first, copy, gone, older, other, last):
        entries.arrive(one, 0.0, redelivered=True)
    entries.take_to_ask(0.0, 10)
    entries.end(gone)

    assert entries.take_copies(first, 3) == [copy, older, last]
    assert entries.take_copies(first, 3) == []
    entries.end(first)
    assert entries.take_to_ask(0.0, 10) == [other]


def test_of_an_entry_without_its_body_only_others_without_one_are_copies() -> None:
    """For a pointer record, only other pointers are copies.

    The ledger is asked about queued records with a value of their own.
    """
    entries = InFlightTable(limits=LIMITS)
    first, pointer = (
        Delivery(
            PARTITION, at, 0, Publication("ledger", "group", "batch", 1, 0), None, None, "route"
        )
        for at in (0, 2)
    )
    second = entry(1, 1)
    for one in (first, second, pointer):
        entries.arrive(one, 0.0, redelivered=False)
    entries.take_ready(1, room)
    entries.hold(first, 1.0)

    assert entries.take_copies(first, 1000) == [pointer]
    entries.end(first)
    assert entries.take_to_ask(0.0, 10) == [second]


def test_a_record_that_comes_later_has_the_first_one_asked_about() -> None:
    """A later record makes the ledger be asked about the first one, at once and once.

    For example, a task that waits for an hour was called up: its new record is behind the one that
    waits.
    """
    entries = InFlightTable(limits=LIMITS)
    first, second, third = entry(1, 0), entry(1, 1), entry(1, 2)
    entries.arrive(first, 0.0, redelivered=False)
    entries.take_ready(1, room)
    entries.hold(first, 3600.0)

    entries.arrive(second, 10.0, redelivered=False)
    entries.arrive(third, 10.0, redelivered=False)

    assert entries.take_to_ask(10.0, 10) == [first]
    assert entries.take_to_ask(4000.0, 10) == []


@pytest.mark.parametrize("late", [True, False])
def test_copies_of_a_delivery_without_a_body_drop_theirs(*, late: bool) -> None:
    """Copies of a delivery without its body wait without theirs.

    An order that was sent twice would otherwise fill the memory for an hour. Different bytes are
    kept, because nobody else has them.
    """
    entries = InFlightTable(limits=LIMITS)
    first, copy, other = entry(1, 0), entry(1, 1), entry(1, 2, digest=b"f" * 16)
    entries.arrive(first, 0.0, redelivered=False)
    entries.take_ready(1, room)
    if late:
        entries.hold(first, 3600.0)
    for one in (copy, other):
        entries.arrive(one, 0.0, redelivered=False)
    if not late:
        entries.hold(first, 3600.0)

    assert (first.value, copy.value, other.value) == (None, None, b"body")
    assert entries.bodies_bytes == 4
    entries.end(first)
    assert entries.take_to_ask(0.0, 10) == [copy]


def test_an_answer_that_was_paid_goes_with_its_entry() -> None:
    """A paid answer is dropped with its delivery, because nothing would settle it then."""
    entries, one = InFlightTable(limits=LIMITS), entry(1)
    entries.arrive(one, 0.0, redelivered=False)
    one.kept_answer = Succeeded(b"answer", COMPLETION, Spent())
    entries.keep_answer(one)

    entries.end(one)

    assert one.kept_answer is None


def test_a_follower_that_is_gone_is_passed_over() -> None:
    """A queued record whose partition was revoked is skipped, and the next one follows."""
    entries = InFlightTable(limits=LIMITS)
    first, second, third = entry(1, 0), entry(1, 1), entry(1, 2)
    for one in (first, second, third):
        entries.arrive(one, 0.0, redelivered=False)

    entries.end(second)
    entries.end(first)

    assert entries.take_to_ask(0.0, 10) == [third]


def test_a_gone_delivery_is_neither_asked_about_nor_claimed() -> None:
    """A delivery whose partition was revoked stays in no queue."""
    entries = InFlightTable(limits=LIMITS)
    asking, ready, held = entry(1), entry(2), entry(3)
    entries.arrive(asking, 0.0, redelivered=True)
    entries.arrive(ready, 0.0, redelivered=False)
    entries.arrive(held, 0.0, redelivered=False)
    entries.hold(held, 5.0)
    for one in (asking, ready, held):
        entries.end(one)

    assert entries.take_ready(10, room) == entries.take_to_ask(10.0, 10) == []


def test_held_entries_that_are_due_are_asked_about_first() -> None:
    """Due deliveries of the delay queue share each question with new ones; neither kind starves."""
    entries = InFlightTable(limits=LIMITS)
    held, new = [entry(number) for number in range(4)], [entry(number) for number in range(10, 14)]
    for one in held:
        entries.arrive(one, 0.0, redelivered=True)
    for one in entries.take_to_ask(0.0, 10):
        entries.hold(one, 1.0)
    for one in new:
        entries.arrive(one, 0.0, redelivered=True)

    assert entries.next_due_s() == 1.0
    assert entries.take_to_ask(1.0, 4) == held[:2] + new[:2]
    assert entries.take_to_ask(1.0, 4) == held[2:] + new[2:]


def test_bodies_are_counted_until_they_are_dropped() -> None:
    """Bodies are counted until dropped; long waits and ended deliveries keep no body."""
    entries = InFlightTable(limits=LIMITS)
    first, second, follower = (
        entry(1, 0, b"x" * 10),
        entry(2, 1, b"x" * 5),
        entry(1, 2, b"x" * 3, digest=b"f" * 16),
    )
    for one in (first, second, follower):
        entries.arrive(one, 0.0, redelivered=False)
    assert entries.bodies_bytes == 18

    entries.hold(first, 5.0)
    assert (entries.bodies_bytes, first.value) == (8, None)
    entries.end(second)
    entries.end(follower)

    assert entries.bodies_bytes == 0


def test_entries_of_an_agent_that_is_gone_are_asked_about() -> None:
    """Deliveries that wait for a lost agent are due before their own time."""
    entries = InFlightTable(limits=LIMITS)
    one = entry(1)
    entries.arrive(one, 0.0, redelivered=False)
    entries.take_ready(1, room)
    one.row = owned_by(1, 7)
    entries.hold_for(one, 7, 0.0)
    assert len(entries._delayed) == 1
    assert entries.take_to_ask(0.5, 10) == []

    assert entries.wake([7], 0.5) == 1
    assert entries.take_to_ask(0.5, 10) == [one]


def test_answers_that_were_paid_and_fenced_are_bounded() -> None:
    """At most a thousand paid answers of fenced settlements are stored; the oldest go first."""
    entries = InFlightTable(limits=LIMITS)
    kept = [entry(number) for number in range(LIMITS.kept_answers + 2)]
    for one in kept:
        one.kept_answer = Succeeded(b"answer", COMPLETION, Spent())
        entries.keep_answer(one)

    assert [one.kept_answer is None for one in kept] == [True, True, *[False] * LIMITS.kept_answers]


def test_the_newest_paid_answer_of_a_task_is_kept_by_its_own_age() -> None:
    """A task that was fenced twice has one place among the kept answers, by its newest answer."""
    entries = InFlightTable(limits=LIMITS)
    twice, *others = [entry(number) for number in range(LIMITS.kept_answers + 1)]
    for delivery in (twice, *others[:-1], twice, others[-1]):
        delivery.kept_answer = Succeeded(b"answer", COMPLETION, Spent())
        entries.keep_answer(delivery)

    assert twice.kept_answer is not None
    assert others[0].kept_answer is None
