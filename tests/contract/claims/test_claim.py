"""A claim answers for every record, takes free tasks, and may be repeated with its owner."""

from datetime import datetime
from typing import Any

import orjson
import pytest
from sqlalchemy import Connection

from docllm.agent.ledger.claims import claiming
from docllm.agent.ports import ClaimAnswer
from docllm.agent.ports.outcome import Outcome
from docllm.schemas.ledger.sql import LONG_AGO
from docllm.schemas.ledger.tables import batch, outbox, task
from docllm.schemas.task.record.envelope import digest
from docllm.schemas.task.states import Status
from tests.support.ledger_database import (
    BATCH,
    DEAD,
    GROUP,
    RELEASED,
    RETRY,
    SUCCEEDED,
    LedgerDatabase,
)


def test_a_free_task_is_claimed(ledger_db: LedgerDatabase) -> None:
    """A due task without an owner becomes the caller's, until the requested deadline."""
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()

    answer, row = ledger_db.answers([ledger_db.record(task_id)], owner, 600.0)[task_id]

    assert answer is ClaimAnswer.CLAIMED
    assert row is not None
    assert (row.owner, row.fence, row.counted_before, row.task_key, row.batch) == (
        owner,
        0,
        0,
        b"a",
        BATCH,
    )
    assert row.due_in_s == pytest.approx(600, abs=30)


def test_a_question_takes_nothing(ledger_db: LedgerDatabase) -> None:
    """The question without locks answers "claimable" and leaves the task as it is."""
    (task_id,) = ledger_db.load("a")

    assert ledger_db.ask(task_id) is ClaimAnswer.CLAIMABLE
    assert ledger_db.status(task_id) is Status.PENDING


def test_another_owner_learns_that_the_task_is_held(ledger_db: LedgerDatabase) -> None:
    """A task under a live claim is held for all others, in a claim and in a question."""
    (task_id,) = ledger_db.load("a")
    lease = ledger_db.agent()
    first = lease.next_owner()
    ledger_db.claimed(task_id, first)

    assert ledger_db.claim(task_id, lease.next_owner()) is ClaimAnswer.HELD
    assert ledger_db.ask(task_id) is ClaimAnswer.HELD
    assert ledger_db.task(task_id).owner == first


def test_the_same_owner_claims_again_after_a_lost_answer(ledger_db: LedgerDatabase) -> None:
    """A claim whose answer was lost is repeated under its own owner, and under no other."""
    (task_id,) = ledger_db.load("a")
    lease = ledger_db.agent()
    owner = lease.next_owner()
    ledger_db.answers([ledger_db.record(task_id)], owner)

    assert ledger_db.claim(task_id, owner) is ClaimAnswer.CLAIMED
    assert ledger_db.claim(task_id, lease.next_owner()) is ClaimAnswer.HELD


@pytest.mark.parametrize("outcome", [SUCCEEDED, DEAD])
def test_a_final_task_is_done(ledger_db: LedgerDatabase, outcome: Outcome) -> None:
    """A record of a final task is finished."""
    (task_id,) = ledger_db.load("a")
    lease = ledger_db.agent()
    owner = lease.next_owner()
    ledger_db.settle(ledger_db.claimed(task_id, owner), owner, outcome)

    assert ledger_db.claim(task_id, lease.next_owner()) is ClaimAnswer.DONE
    assert ledger_db.ask(task_id) is ClaimAnswer.DONE


def test_a_claim_stores_its_time_and_reads_the_tenant(ledger_db: LedgerDatabase) -> None:
    """A running task knows since when it runs, and its row names whose task it is."""
    (one,) = ledger_db.load("a")
    ledger_db.set(task, one, tenant="acme")
    assert ledger_db.task(one).claimed_at == datetime.fromisoformat(LONG_AGO)

    row = ledger_db.claimed(one, ledger_db.agent().next_owner())

    lasts_s = (ledger_db.task(one).due_at - ledger_db.task(one).claimed_at).total_seconds()
    assert lasts_s == pytest.approx(600.0, abs=0.01)
    assert row.tenant == "acme"


def test_a_claim_reads_texts_as_they_are(ledger_db: LedgerDatabase) -> None:
    """Quotes, backslashes, control characters and any script come back from every database."""
    text = """a"b\\c'd\\"e/f\t\x01\x7f\u2028 {"g": [1]} 100% ü 日本 \N{ROBOT FACE}"""
    (task_id,) = ledger_db.load("a", into=text)
    ledger_db.set(task, task_id, tenant=text, type=text, max_attempts=32_000)
    ledger_db.set(
        batch, ledger_db.batch(text).id, options=orjson.dumps({"output_uri": text}).decode()
    )
    owner = (1 << 62) + 1

    row = ledger_db.claimed(task_id, owner)

    assert (row.batch, row.tenant, row.type, row.output_uri) == (text, text, text, text)
    assert (row.owner, row.max_attempts) == (owner, 32_000)


def test_an_older_record_is_stale(ledger_db: LedgerDatabase) -> None:
    """After a retry has ordered a newer record, the older one takes nothing.

    This holds for waiting and for running tasks.
    """
    (task_id,) = ledger_db.load("a")
    lease = ledger_db.agent()
    owner = lease.next_owner()
    ledger_db.settle(ledger_db.claimed(task_id, owner), owner, RETRY)
    ledger_db.ago(task.c.due_at, 1, task_id)

    assert ledger_db.claim(task_id, lease.next_owner(), fence=0) is ClaimAnswer.STALE
    assert ledger_db.status(task_id) is Status.RETRYING
    assert ledger_db.claim(task_id, lease.next_owner(), fence=1) is ClaimAnswer.CLAIMED
    assert ledger_db.ask(task_id, fence=0) is ClaimAnswer.STALE


def test_a_task_that_is_not_due_is_early(ledger_db: LedgerDatabase) -> None:
    """The database's clock decides: before its due time a task is early.

    The answer says how long it will be.
    """
    (task_id,) = ledger_db.load("a")
    lease = ledger_db.agent()
    owner = lease.next_owner()
    ledger_db.settle(ledger_db.claimed(task_id, owner), owner, RETRY)

    answer, row = ledger_db.answers([ledger_db.record(task_id, fence=1)], lease.next_owner())[
        task_id
    ]

    assert answer is ClaimAnswer.EARLY
    assert row is not None
    assert 0 < row.due_in_s <= 31
    assert ledger_db.ask(task_id, fence=1) is ClaimAnswer.EARLY


def test_a_task_that_came_back_between_the_statements_is_again(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller must ask again if the task was busy for the update and free for the read."""
    (task_id,) = ledger_db.load("a")
    lease = ledger_db.agent()
    first, second = lease.next_owner(), lease.next_owner()
    ledger_db.claimed(task_id, first)
    read = claiming._answers

    def released_meanwhile(connection: Connection, *rest: Any) -> object:
        claiming.release(connection, first, [task_id])
        return read(connection, *rest)

    monkeypatch.setattr(claiming, "_answers", released_meanwhile)

    assert ledger_db.claim(task_id, second) is ClaimAnswer.AGAIN


def test_a_record_with_another_content_is_a_conflict_and_takes_nothing(
    ledger_db: LedgerDatabase,
) -> None:
    """A record whose key or value is not the task's gives back at once what its claim took."""
    (task_id,) = ledger_db.load("a")
    lease = ledger_db.agent()
    forged = ledger_db.record(task_id, stamp=digest(b"a", b"other"))

    answer = ledger_db.answers([forged], lease.next_owner())[task_id][0]

    assert answer is ClaimAnswer.CONFLICT
    assert (ledger_db.status(task_id), ledger_db.task(task_id).owner) == (Status.PENDING, 0)


def test_the_right_content_is_no_conflict(ledger_db: LedgerDatabase) -> None:
    """The digest of the loaded key and value is accepted."""
    (task_id,) = ledger_db.load("a")
    genuine = ledger_db.record(task_id, stamp=digest(b"a", b"value of a"))

    assert (
        ledger_db.answers([genuine], ledger_db.agent().next_owner())[task_id][0]
        is ClaimAnswer.CLAIMED
    )


def test_a_fence_far_above_the_rows_is_a_conflict(ledger_db: LedgerDatabase) -> None:
    """A record may run ahead of a ledger that lost transactions, by at most a thousand."""
    first, second = ledger_db.load("a", "b")
    lease = ledger_db.agent()

    assert ledger_db.claim(first, lease.next_owner(), fence=1000) is ClaimAnswer.CLAIMED
    assert ledger_db.claim(second, lease.next_owner(), fence=1001) is ClaimAnswer.CONFLICT
    assert ledger_db.status(second) is Status.PENDING


def test_a_conflicting_record_leaves_a_running_claim_alone(ledger_db: LedgerDatabase) -> None:
    """A forged record of a running task does not end that task's claim."""
    (task_id,) = ledger_db.load("a")
    lease = ledger_db.agent()
    first = lease.next_owner()
    ledger_db.claimed(task_id, first)

    ledger_db.answers([ledger_db.record(task_id, stamp=bytes(16))], lease.next_owner())

    assert ledger_db.task(task_id).owner == first


def test_a_task_without_a_row_is_unknown_or_done(ledger_db: LedgerDatabase) -> None:
    """Without a row a record is unknown, or done if its batch was archived."""
    ledger_db.load("a")
    lease = ledger_db.agent()
    assert ledger_db.claim(999_999, lease.next_owner()) is ClaimAnswer.UNKNOWN

    ledger_db.ago(batch.c.archived_at, 1)

    assert ledger_db.claim(999_999, lease.next_owner()) is ClaimAnswer.DONE


def test_one_call_answers_for_records_of_every_kind(ledger_db: LedgerDatabase) -> None:
    """Each record is claimed by its own fence, and none stays without an answer."""
    free, moved, ended = ledger_db.load("free", "moved", "ended")
    lease = ledger_db.agent()
    owner = lease.next_owner()
    ledger_db.settle(ledger_db.claimed(moved, owner), owner, RETRY)
    ledger_db.settle(ledger_db.claimed(ended, owner), owner, SUCCEEDED)
    ledger_db.ago(task.c.due_at, 1, moved)
    records = [
        ledger_db.record(moved, 1),
        ledger_db.record(free),
        ledger_db.record(ended),
        ledger_db.record(77),
    ]

    answers = ledger_db.answers(records, lease.next_owner())

    assert {key: answer for key, (answer, _) in answers.items()} == {
        free: ClaimAnswer.CLAIMED,
        moved: ClaimAnswer.CLAIMED,
        ended: ClaimAnswer.DONE,
        77: ClaimAnswer.UNKNOWN,
    }


def test_a_task_past_its_deadline_is_claimed_as_expired(ledger_db: LedgerDatabase) -> None:
    """The claim reports the passed deadline, so that the task is settled without a call."""
    first, second = ledger_db.load("a", "b")
    ledger_db.ago(task.c.expires_at, 1, first)
    owner = ledger_db.agent().next_owner()

    assert ledger_db.claimed(first, owner).expired
    assert not ledger_db.claimed(second, owner).expired


def test_a_release_gives_back_only_the_owners_claims(ledger_db: LedgerDatabase) -> None:
    """A release counts and publishes nothing, and leaves others' claims and ended tasks."""
    own_task, other, ended = ledger_db.load("mine", "other", "ended")
    lease = ledger_db.agent()
    owner, stranger = lease.next_owner(), lease.next_owner()
    ledger_db.claimed(own_task, owner)
    ledger_db.claimed(other, stranger)
    ledger_db.settle(ledger_db.claimed(ended, owner), owner, SUCCEEDED)

    ledger_db.call(claiming.release, owner, [own_task, other, ended])

    assert (
        ledger_db.status(own_task),
        ledger_db.task(own_task).owner,
        ledger_db.task(own_task).attempt,
    ) == (
        Status.PENDING,
        0,
        0,
    )
    assert (ledger_db.status(other), ledger_db.task(other).owner) == (Status.PROCESSING, stranger)
    assert ledger_db.status(ended) is Status.SUCCEEDED
    assert ledger_db.count(outbox) == 0
    assert ledger_db.claim(own_task, lease.next_owner()) is ClaimAnswer.CLAIMED


def test_a_settled_release_can_be_claimed_at_once(ledger_db: LedgerDatabase) -> None:
    """A release as an outcome returns the task with the same fence, due now, without an order."""
    (task_id,) = ledger_db.load("a")
    lease = ledger_db.agent()
    owner = lease.next_owner()

    ledger_db.settle(ledger_db.claimed(task_id, owner), owner, RELEASED)

    assert ledger_db.claim(task_id, lease.next_owner()) is ClaimAnswer.CLAIMED
    assert ledger_db.count(outbox) == 0


def test_relief_orders_another_record_for_a_running_task_only(ledger_db: LedgerDatabase) -> None:
    """Under the claim an order with the same fence is written; without it nothing is."""
    (task_id,) = ledger_db.load("a")
    lease = ledger_db.agent()
    owner = lease.next_owner()
    ledger_db.claimed(task_id, owner)

    order = ledger_db.call(
        claiming.relieve, group=GROUP, record=ledger_db.record(task_id), fence=0, owner=owner
    )
    refused = ledger_db.call(
        claiming.relieve,
        group=GROUP,
        record=ledger_db.record(task_id),
        fence=0,
        owner=lease.next_owner(),
    )

    assert order is not None
    assert (order.destination, order.items) == ("tasks", ((0, task_id, 0),))
    assert refused is None
    assert ledger_db.count(outbox) == 1


def test_relief_orders_another_record_for_a_task_that_waits_at_its_fence(
    ledger_db: LedgerDatabase,
) -> None:
    """The holder of a snoozed task's record may order its relief.

    A running task, or one that waits at another fence, gets no relief.
    """
    waiting, running = ledger_db.load("a", "b")
    ledger_db.claimed(running, ledger_db.agent().next_owner())

    orders = [
        ledger_db.call(claiming.relieve, GROUP, ledger_db.record(task_id), fence, None)
        for task_id, fence in ((waiting, 0), (waiting, 1), (running, 0))
    ]

    assert [order.items if order else None for order in orders] == [((0, waiting, 0),), None, None]


def test_relief_compares_a_record_with_its_task(ledger_db: LedgerDatabase) -> None:
    """The ordered record has the task's value.

    A record that only names the task would be lost, whether the task waits or runs.
    """
    waiting, running = ledger_db.load("a", "b")
    owner = ledger_db.agent().next_owner()
    ledger_db.claimed(running, owner)

    def ordered(task_id: int, stamp: bytes, by: int | None) -> bool:
        return (
            ledger_db.call(
                claiming.relieve,
                group=GROUP,
                record=ledger_db.record(task_id, stamp=stamp),
                fence=0,
                owner=by,
            )
            is not None
        )

    assert [ordered(waiting, digest(b"a", value), None) for value in (b"other", b"value of a")] == [
        False,
        True,
    ]
    assert [
        ordered(running, digest(b"b", value), owner) for value in (b"other", b"value of b")
    ] == [False, True]


def test_a_claim_reports_a_cancelled_batch(ledger_db: LedgerDatabase) -> None:
    """A task claimed after its batch was cancelled is known as such, until the batch reopens."""
    first, second, third = ledger_db.load("a", "b", "c")
    lease = ledger_db.agent()

    before = ledger_db.claimed(first, lease.next_owner())
    ledger_db.cancel()
    between = ledger_db.claimed(second, lease.next_owner())
    ledger_db.set(batch, ledger_db.batch().id, cancelled_at=None)
    after = ledger_db.claimed(third, lease.next_owner())

    assert [row.cancelled for row in (before, between, after)] == [False, True, False]


def test_bodies_come_back_byte_for_byte(ledger_db: LedgerDatabase) -> None:
    """The ledger returns key and value of records kept without them; missing ids are left out."""
    first, _ = ledger_db.load("a", "b")

    assert ledger_db.call(claiming.bodies, [first, 4711]) == {first: (b"a", b"value of a")}


def test_the_longest_key_comes_back_whole(ledger_db: LedgerDatabase) -> None:
    """A key of 191 bytes is stored and read back byte for byte."""
    (task_id,) = ledger_db.load("ü" * 95 + "k")

    assert (
        ledger_db.claimed(task_id, ledger_db.agent().next_owner()).task_key
        == ("ü" * 95 + "k").encode()
    )
