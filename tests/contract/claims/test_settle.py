"""A settle is accepted once, under its claim's owner; any other is an echo or superseded."""

from dataclasses import replace

import pytest

from docllm.agent.judge import fingerprint
from docllm.agent.ledger.recovery import reaping
from docllm.agent.ledger.settlements.uncounted_ends import FREE_ENDS
from docllm.agent.ports import ClaimAnswer, Verdict
from docllm.agent.ports.outcome import (
    NOTHING_SPENT,
    Cancelled,
    Failure,
    Moved,
    Outcome,
    Released,
    Snooze,
    Spent,
)
from docllm.producer.ledger import outbox, task_story
from docllm.producer.ports import Item
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.sql import NEVER_TIME
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.states import Status
from docllm.schemas.task.waits import WaitReason
from tests.support.ledger_database import (
    BATCH,
    DEAD,
    GROUP,
    ORIGIN,
    REFUSED,
    RELEASED,
    RETRY,
    SNOOZE,
    SPENT,
    SUCCEEDED,
    LedgerDatabase,
    settlement,
)

COUNTED = [SUCCEEDED, RETRY, SNOOZE, DEAD]


def reaped(ledger_db: LedgerDatabase, task_id: int) -> None:
    """Reset a task whose claim is overdue, as the reaper does."""
    ledger_db.ago(tables.task.c.due_at, 1, task_id)
    assert ledger_db.call(reaping.reset_overdue, GROUP, [task_id]).waiting == 1


def test_a_move_without_a_call_leaves_no_row_in_the_history(ledger_db: LedgerDatabase) -> None:
    """A raised guard and a closed route move the task each hour; a move after a call has cost."""
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()
    failures = [
        REFUSED,
        Failure(ErrorClass.GUARD, "raised"),
        Failure(ErrorClass.ROUTE, "closed"),
        Failure(ErrorClass.GUARD, "raised still"),
    ]
    for fence, failure in enumerate(failures):
        ledger_db.settle(
            ledger_db.claimed(task_id, owner + fence, fence),
            owner + fence,
            Moved(failure, NOTHING_SPENT, 0.0, WaitReason.GUARD, "1/document"),
        )
    (other,) = ledger_db.load("b")
    paid = Moved(failures[1], replace(SPENT, call_id="call"), 0.0, WaitReason.GUARD, "1/document")
    ledger_db.settle(ledger_db.claimed(other, owner), owner, paid)

    kept = [(row.task_id, row.fence, row.error_text) for row in ledger_db.rows(tables.task_attempt)]

    assert kept == [(task_id, 0, REFUSED.text), (other, 0, "raised")]


def test_a_wait_that_took_too_long_leaves_no_row_in_the_history(ledger_db: LedgerDatabase) -> None:
    """Its task may try each minute; only what it had paid by then is kept."""
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()
    free = Snooze(Failure(ErrorClass.COME_BACK, "no room"), NOTHING_SPENT, 0.0)
    paid = replace(free, spent=replace(SPENT, call_id="call"))
    for number, outcome in enumerate((free, free, paid)):
        verdict = ledger_db.settle(
            ledger_db.claimed(task_id, owner + number), owner + number, outcome
        )
        assert verdict is Verdict.SETTLED

    kept = [(row.owner, row.error_text) for row in ledger_db.rows(tables.task_attempt)]

    assert kept == [(owner + 2, "no room")]


def test_a_lost_attempt_is_written_once_and_taken_back(ledger_db: LedgerDatabase) -> None:
    """It does not count; the late settle of its claim takes back its own loss alone."""
    (task_id,) = ledger_db.load("a")
    agent = ledger_db.agent("host:1")
    first, second = agent.next_owner(), agent.next_owner()
    ledger_db.claimed(task_id, first)
    reaped(ledger_db, task_id)
    row = ledger_db.claimed(task_id, second)
    reaped(ledger_db, task_id)

    story = ledger_db.call(task_story.story, GROUP, BATCH, "a")
    assert story is not None
    assert [(each.outcome, each.error_class, each.agent) for each in story.history] == [
        ("lost", "AGENT_LOST", "host:1")
    ] * 2
    assert (story.losses, story.attempts) == (2, 0)

    assert ledger_db.settle(row, first, SUCCEEDED) is Verdict.SUPERSEDED
    assert ledger_db.settle(row, second, DEAD) is Verdict.SETTLED

    lost = [row for row in ledger_db.rows(tables.task_attempt) if row.outcome == "lost"]
    (letter,) = ledger_db.rows(tables.dead_letter)
    assert [(row.owner, row.lost_owner) for row in lost] == [(0, first)]
    assert (ledger_db.task(task_id).losses, letter.attempts) == (1, 1)


def test_a_claim_that_was_made_and_lost_twice_takes_both_losses_back(
    ledger_db: LedgerDatabase,
) -> None:
    """A claim whose answer was lost is made again under its number, after a reset, too."""
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()
    for _ in range(2):
        row = ledger_db.claimed(task_id, owner)
        reaped(ledger_db, task_id)
    assert ledger_db.task(task_id).losses == 2

    assert ledger_db.settle(row, owner, SUCCEEDED) is Verdict.SETTLED

    assert ledger_db.task(task_id).losses == 0
    assert not ledger_db.rows(tables.task_attempt)


def test_what_the_model_said_is_kept_with_its_attempt(ledger_db: LedgerDatabase) -> None:
    """A settle that is repeated writes it once; an attempt without a refused answer has none."""
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()
    refused = Failure(ErrorClass.BAD_OUTPUT, "no JSON", reply="I am sorry \ud800\x00")
    for fence, failure in enumerate((refused, REFUSED)):
        row = ledger_db.claimed(task_id, owner + fence, fence)
        outcome = replace(RETRY, failure=failure, delay_s=0.0)
        verdicts = [ledger_db.settle(row, owner + fence, outcome) for _ in range(2)]
        assert verdicts == [Verdict.SETTLED] * 2

    (kept,) = ledger_db.rows(tables.reply)
    story = ledger_db.call(task_story.story, GROUP, BATCH, "a")

    assert (kept.task_id, kept.owner) == (task_id, owner)
    assert story is not None
    assert [attempt.reply for attempt in story.history] == ["I am sorry ?\x00", ""]


def test_a_success_is_written_whole(ledger_db: LedgerDatabase) -> None:
    """State, answer, cost and count are one transaction.

    Nothing is ordered, and the task has no owner any more.
    """
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()

    assert ledger_db.settle(ledger_db.claimed(task_id, owner), owner, SUCCEEDED) is Verdict.SETTLED

    row = ledger_db.task(task_id)
    assert (row.status, row.owner, row.fence, row.attempt, row.due_at) == (
        Status.SUCCEEDED,
        0,
        0,
        0,
        NEVER_TIME,
    )
    (result,) = ledger_db.rows(tables.task_result)
    assert (result.task_id, result.owner, result.body, result.codec) == (
        task_id,
        owner,
        b"answer",
        SUCCEEDED.codec,
    )
    assert (result.model, result.tokens_in, result.tokens_out, result.cost_micro) == (
        "model",
        10,
        5,
        300,
    )
    assert (result.trace_id, result.duration_ms) == ("trace", 1500)
    assert ledger_db.count(tables.outbox) == ledger_db.count(tables.task_attempt) == 0
    count = ledger_db.rows(tables.tally)[-1]
    assert (count.state, count.outcome, count.delta, count.tokens_in, count.route) == (
        Status.SUCCEEDED,
        "succeeded",
        1,
        10,
        "route",
    )


def test_a_retry_raises_fence_and_attempt_and_orders_the_new_record(
    ledger_db: LedgerDatabase,
) -> None:
    """The task waits for its delay.

    The order for its tier carries the new fence, and the attempt is stored.
    """
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()

    verdicts, orders = ledger_db.settle_all(
        [settlement(ledger_db.claimed(task_id, owner), owner, RETRY)]
    )

    row = ledger_db.task(task_id)
    assert verdicts == [Verdict.SETTLED]
    assert (row.status, row.owner, row.fence, row.attempt) == (Status.RETRYING, 0, 1, 1)
    assert 25 < ledger_db.due_in_s(task_id) <= 31
    assert [(order.destination, order.items) for order in orders] == [
        ("retry.30s", (Item(outbox.TASK, task_id, 1),))
    ]
    (attempt,) = ledger_db.rows(tables.task_attempt)
    assert (attempt.task_id, attempt.owner, attempt.attempt, attempt.fence) == (
        task_id,
        owner,
        0,
        0,
    )
    assert (attempt.outcome, attempt.error_class, attempt.error_text) == (
        "retry",
        "SERVER",
        "it answered 503",
    )
    assert (attempt.tokens_in, attempt.cost_micro, attempt.duration_ms) == (10, 300, 1500)


def test_a_snooze_counts_nothing_and_keeps_the_record(ledger_db: LedgerDatabase) -> None:
    """Fence and attempt stay the same, the task waits, and there is no order.

    The same record claims again when the task is due.
    """
    (task_id,) = ledger_db.load("a")
    lease = ledger_db.agent()
    owner = lease.next_owner()

    ledger_db.settle(ledger_db.claimed(task_id, owner), owner, SNOOZE)

    row = ledger_db.task(task_id)
    assert (row.status, row.owner, row.fence, row.attempt) == (Status.PENDING, 0, 0, 0)
    assert 15 < ledger_db.due_in_s(task_id) <= 20
    assert ledger_db.count(tables.outbox) == 0
    ledger_db.ago(tables.task.c.due_at, 1, task_id)
    assert ledger_db.claim(task_id, lease.next_owner()) is ClaimAnswer.CLAIMED


def test_a_death_leaves_a_letter_and_an_order(ledger_db: LedgerDatabase) -> None:
    """The dead letter has the reason, the record's position and the fence.

    The order is for the dead-letter topic.
    """
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()

    _, orders = ledger_db.settle_all([settlement(ledger_db.claimed(task_id, owner), owner, DEAD)])

    row = ledger_db.task(task_id)
    assert (row.status, row.owner, row.fence, row.attempt, row.due_at) == (
        Status.DEAD,
        0,
        0,
        1,
        NEVER_TIME,
    )
    (letter,) = ledger_db.rows(tables.dead_letter)
    assert (letter.task_id, letter.fence, letter.disposition, letter.error_class) == (
        task_id,
        0,
        "permanent",
        "BAD_REQUEST",
    )
    assert (letter.error_text, letter.fingerprint) == (
        "it answered 400",
        fingerprint("BAD_REQUEST", "it answered 400"),
    )
    assert (
        letter.origin_topic,
        letter.origin_partition,
        letter.origin_offset,
        letter.origin_timestamp_ms,
    ) == ORIGIN
    assert [(order.destination, order.items) for order in orders] == [
        ("dlq", (Item(outbox.TASK, task_id, 0),))
    ]
    assert [attempt.outcome for attempt in ledger_db.rows(tables.task_attempt)] == ["dead"]


@pytest.mark.parametrize("outcome", COUNTED)
def test_a_settle_that_ran_twice_settles_once(ledger_db: LedgerDatabase, outcome: Outcome) -> None:
    """After a lost COMMIT the transaction runs again.

    It returns SETTLED, and writes, orders and counts nothing more.
    """
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()
    row = ledger_db.claimed(task_id, owner)
    first = ledger_db.settle(row, owner, outcome)
    before = [ledger_db.rows(table) for table in tables.metadata.sorted_tables]

    again, orders = ledger_db.settle_all([settlement(row, owner, outcome)])

    assert (first, again, orders) == (Verdict.SETTLED, [Verdict.SETTLED], [])
    assert [ledger_db.rows(table) for table in tables.metadata.sorted_tables] == before


@pytest.mark.parametrize("outcome", [*COUNTED, RELEASED])
def test_a_late_settle_is_accepted_until_another_agent_claims(
    ledger_db: LedgerDatabase, outcome: Outcome
) -> None:
    """A reaped task keeps its owner, so that the paid answer still counts."""
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()
    row = ledger_db.claimed(task_id, owner)
    reaped(ledger_db, task_id)

    assert ledger_db.settle(row, owner, outcome) is Verdict.SETTLED
    assert ledger_db.task(task_id).owner == 0


@pytest.mark.parametrize("outcome", [*COUNTED, RELEASED])
def test_a_settle_after_another_claim_is_superseded(
    ledger_db: LedgerDatabase, outcome: Outcome
) -> None:
    """Once another owner has claimed, the old owner's outcome changes nothing at all."""
    (task_id,) = ledger_db.load("a")
    lease = ledger_db.agent()
    old, new = lease.next_owner(), lease.next_owner()
    row = ledger_db.claimed(task_id, old)
    reaped(ledger_db, task_id)
    ledger_db.claimed(task_id, new)
    before = [ledger_db.rows(table) for table in tables.metadata.sorted_tables]

    verdicts, orders = ledger_db.settle_all([settlement(row, old, outcome)])

    assert (verdicts, orders) == ([Verdict.SUPERSEDED], [])
    assert [ledger_db.rows(table) for table in tables.metadata.sorted_tables] == before


def test_only_the_last_owner_may_settle_late(
    ledger_db: LedgerDatabase,
) -> None:
    """A reaped task that was claimed and released since belongs to nobody.

    So the first owner is superseded.
    """
    (task_id,) = ledger_db.load("a")
    lease = ledger_db.agent()
    old, new = lease.next_owner(), lease.next_owner()
    row = ledger_db.claimed(task_id, old)
    reaped(ledger_db, task_id)
    ledger_db.settle(ledger_db.claimed(task_id, new), new, RELEASED)

    assert ledger_db.settle(row, old, SUCCEEDED) is Verdict.SUPERSEDED
    assert ledger_db.status(task_id) is Status.PENDING
    assert ledger_db.count(tables.task_result) == 0


def test_a_settle_after_its_release_is_superseded(ledger_db: LedgerDatabase) -> None:
    """A claim that was released cannot be settled."""
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()
    row = ledger_db.claimed(task_id, owner)
    ledger_db.settle(row, owner, RELEASED)

    assert ledger_db.settle(row, owner, SUCCEEDED) is Verdict.SUPERSEDED


def test_two_claims_settle_once(ledger_db: LedgerDatabase) -> None:
    """The second owner's success stands; the first owner's comes too late.

    There is one result.
    """
    (task_id,) = ledger_db.load("a")
    lease = ledger_db.agent()
    old, new = lease.next_owner(), lease.next_owner()
    first = ledger_db.claimed(task_id, old)
    reaped(ledger_db, task_id)
    second = ledger_db.claimed(task_id, new)

    assert ledger_db.settle(second, new, SUCCEEDED) is Verdict.SETTLED
    assert ledger_db.settle(first, old, SUCCEEDED) is Verdict.SUPERSEDED
    assert [result.owner for result in ledger_db.rows(tables.task_result)] == [new]


@pytest.mark.parametrize("outcome", [RETRY, SNOOZE, RELEASED])
def test_a_retry_in_a_cancelled_batch_becomes_cancelled(
    ledger_db: LedgerDatabase, outcome: Outcome
) -> None:
    """A retry, a snooze or a release of a cancelled batch ends its task and orders nothing."""
    (task_id,) = ledger_db.load("a")
    lease = ledger_db.agent()
    owner = lease.next_owner()
    row = ledger_db.claimed(task_id, owner)
    ledger_db.cancel()

    verdicts, orders = ledger_db.settle_all([settlement(row, owner, outcome)])

    assert (verdicts, orders) == ([Verdict.CANCELLED], [])
    assert ledger_db.status(task_id) is Status.CANCELLED
    assert ledger_db.claim(task_id, lease.next_owner()) is ClaimAnswer.DONE
    assert ledger_db.rows(tables.tally)[-1].outcome == "cancelled"


def test_an_echo_has_the_verdict_of_the_settle_that_it_repeats(ledger_db: LedgerDatabase) -> None:
    """After a lost COMMIT, the second try says too that the snooze became a cancel."""
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()
    row = ledger_db.claimed(task_id, owner)
    ledger_db.cancel()

    verdicts = [ledger_db.settle(row, owner, SNOOZE) for _ in range(2)]

    assert verdicts == [Verdict.CANCELLED] * 2


@pytest.mark.parametrize(
    ("outcome", "status"), [(SUCCEEDED, Status.SUCCEEDED), (DEAD, Status.DEAD)]
)
def test_a_final_outcome_in_a_cancelled_batch_is_kept(
    ledger_db: LedgerDatabase, outcome: Outcome, status: Status
) -> None:
    """A paid answer of a cancelled batch is stored, and a death is a death."""
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()
    row = ledger_db.claimed(task_id, owner)
    ledger_db.cancel()

    assert ledger_db.settle(row, owner, outcome) is Verdict.SETTLED
    assert ledger_db.status(task_id) is status


def test_a_group_writes_every_kind_in_one_transaction(ledger_db: LedgerDatabase) -> None:
    """Outcomes of all kinds settle together, with one order per destination.

    Each gets its own verdict, in order.
    """
    ids = ledger_db.load(
        "succeeded", "retry", "snooze", "dead", "released", "superseded", "retry too"
    )
    lease = ledger_db.agent()
    owner = lease.next_owner()
    rows = [ledger_db.claimed(task_id, owner) for task_id in ids]
    outcomes: list[Outcome] = [SUCCEEDED, RETRY, SNOOZE, DEAD, RELEASED, SUCCEEDED]
    outcomes.append(replace(RETRY, delay_s=90.0))
    stranger = lease.next_owner()
    group = [
        settlement(row, stranger if row.task_key == b"superseded" else owner, out)
        for row, out in zip(rows, outcomes, strict=True)
    ]

    verdicts, orders = ledger_db.settle_all(group)

    assert [verdict is Verdict.SETTLED for verdict in verdicts] == [
        True,
        True,
        True,
        True,
        True,
        False,
        True,
    ]
    assert [(order.destination, len(order.items)) for order in orders] == [
        ("dlq", 1),
        ("retry.30s", 2),
    ]
    states = [
        Status.SUCCEEDED,
        Status.RETRYING,
        Status.PENDING,
        Status.DEAD,
        Status.PENDING,
        Status.PROCESSING,
        Status.RETRYING,
    ]
    assert [ledger_db.status(task_id) for task_id in ids] == states
    assert 80 < ledger_db.due_in_s(ids[-1]) <= 90


def test_a_counted_settle_forgets_lost_leases(ledger_db: LedgerDatabase) -> None:
    """A settled attempt sets the count of lost leases to 0; a snooze does not."""
    for outcome, losses in ((RETRY, 0), (SNOOZE, 2), (SUCCEEDED, 0)):
        (task_id,) = ledger_db.load(type(outcome).__name__)
        owner = ledger_db.agent().next_owner()
        row = ledger_db.claimed(task_id, owner)
        ledger_db.set(tables.task, task_id, lease_losses=2)

        ledger_db.settle(row, owner, outcome)

        assert ledger_db.task(task_id).lease_losses == losses


def test_fences_only_rise(ledger_db: LedgerDatabase) -> None:
    """Claim, release, reap, snooze and death keep the fence; each retry raises it by one."""
    (task_id,) = ledger_db.load("a")
    lease = ledger_db.agent()
    fences = []
    for outcome in (RELEASED, RETRY, Snooze(RETRY.failure, SPENT, 0.0), RETRY, DEAD):
        ledger_db.ago(tables.task.c.due_at, 1, task_id)
        owner = lease.next_owner()
        row = ledger_db.claimed(task_id, owner, fence=ledger_db.task(task_id).fence)
        ledger_db.settle(row, owner, outcome)
        fences.append(ledger_db.task(task_id).fence)

    assert fences == [0, 1, 1, 2, 2]


BUG = Snooze(Failure(ErrorClass.INTERNAL, "ValueError"), SPENT, 0.0)
WAITED = Snooze(Failure(ErrorClass.COME_BACK, "no room"), SPENT, 0.0)


@pytest.mark.parametrize("outcome", [Released(SPENT), Cancelled(SPENT), BUG])
def test_the_cost_of_an_attempt_is_recorded_however_it_ended(
    ledger_db: LedgerDatabase, outcome: Outcome
) -> None:
    """An attempt that cost something has a row and a count with its cost.

    It may have been given back or cancelled, or ended in a bug.
    """
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()
    row = ledger_db.claimed(task_id, owner)
    if isinstance(outcome, Cancelled):
        ledger_db.cancel()

    assert ledger_db.settle(row, owner, outcome) is Verdict.SETTLED

    (attempt,) = ledger_db.rows(tables.task_attempt)
    assert (attempt.owner, attempt.outcome, attempt.cost_micro) == (
        owner,
        type(outcome).__name__.lower(),
        SPENT.cost_micro,
    )
    assert sum(row.cost_micro for row in ledger_db.rows(tables.tally)) == SPENT.cost_micro
    assert ledger_db.task(task_id).attempt == 0


@pytest.mark.parametrize(
    "outcome", [SUCCEEDED, RETRY, SNOOZE, DEAD, Cancelled(SPENT), Released(SPENT)]
)
def test_what_was_spent_on_a_route_that_an_attempt_left_is_booked_there(
    ledger_db: LedgerDatabase, outcome: Outcome
) -> None:
    """The counts name each route with its own cost; the row of the attempt has the whole."""
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()
    row = ledger_db.claimed(task_id, owner)
    if isinstance(outcome, Cancelled):
        ledger_db.cancel()
    before = Spent(
        model="small",
        tokens_in=100,
        tokens_out=5,
        cost_micro=7000,
        call_id="b/a#1",
        duration_ms=900,
        tokens_cached=40,
        unsure_micro=3,
    )
    spent = SPENT.plus(before.leaving_route("cheap", ErrorClass.FILTERED))

    ledger_db.settle(row, owner, replace(outcome, spent=spent))

    counted = ledger_db.rows(tables.tally)
    (left,) = [count for count in counted if count.route == "cheap"]
    assert (left.outcome, left.model, left.delta) == ("FILTERED", "small", 0)
    assert (left.tokens_in, left.tokens_out, left.tokens_cached) == (100, 5, 40)
    assert (left.cost_micro, left.unsure_micro) == (7000, 3)
    rest = [count for count in counted if count.route == "route"]
    assert sum(count.cost_micro for count in rest) == SPENT.cost_micro
    assert sum(count.tokens_in for count in rest) == SPENT.tokens_in
    (ended,) = [*ledger_db.rows(tables.task_result), *ledger_db.rows(tables.task_attempt)]
    assert (ended.route, ended.cost_micro) == ("route", SPENT.cost_micro + 7000)


def test_a_claim_released_before_a_call_leaves_no_attempt(ledger_db: LedgerDatabase) -> None:
    """Claims are given back at each rebalance, so only those that cost something are recorded."""
    (task_id,) = ledger_db.load("a")
    ledger_db.settled(task_id, Released())

    assert ledger_db.count(tables.task_attempt) == 0


@pytest.mark.parametrize("earlier", [0, 3])
def test_a_run_that_was_cut_off_is_a_loss(ledger_db: LedgerDatabase, earlier: int) -> None:
    """The next run may look whether it has changed something. From the fourth on it is counted."""
    (task_id,) = ledger_db.load("a")
    for _ in range(earlier):
        ledger_db.settled(task_id, Released(SPENT))
    assert ledger_db.task(task_id).losses == 0  # nothing of a handler had begun

    ledger_db.settled(task_id, Released(SPENT, cut_off=True))

    task = ledger_db.task(task_id)
    assert (task.losses, task.lease_losses, task.attempt) == (1, 0, int(earlier > 0))


def test_a_cut_off_run_of_a_lost_claim_is_one_loss(ledger_db: LedgerDatabase) -> None:
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()
    row = ledger_db.claimed(task_id, owner)
    reaped(ledger_db, task_id)

    assert ledger_db.settle(row, owner, Released(cut_off=True)) is Verdict.SETTLED

    assert ledger_db.task(task_id).losses == 1


def test_a_task_that_waits_for_its_output_keeps_the_attempt_that_it_paid_for(
    ledger_db: LedgerDatabase,
) -> None:
    """A store may be away for days, and each of its tasks asks every few seconds."""
    (task_id,) = ledger_db.load("a")
    lease = ledger_db.agent()
    away = Failure(ErrorClass.OUTPUT_UNWRITABLE, "the store is away")
    for spent in (Spent(), SPENT, Spent(model="m", call_id="call"), Spent()):
        owner = lease.next_owner()
        ledger_db.settle(ledger_db.claimed(task_id, owner), owner, Snooze(away, spent, 0.0))

    (kept,) = ledger_db.rows(tables.task_attempt)
    assert kept.cost_micro == SPENT.cost_micro
    assert ledger_db.task(task_id).status == Status.PENDING


@pytest.mark.parametrize("outcome", [Released(SPENT), BUG, WAITED])
def test_ends_that_count_as_no_attempt_are_few(ledger_db: LedgerDatabase, outcome: Outcome) -> None:
    """After three such ends, the next one counts as an attempt.

    So no task is paid for without end, and it is dead when its attempts are used up.
    """
    first, other = ledger_db.load("a", "other")
    ledger_db.set(tables.task, first, max_attempts=2)
    lease, seen = ledger_db.agent(), []
    ledger_db.settle(
        ledger_db.claimed(other, owner := lease.next_owner()), owner, SUCCEEDED
    )  # its route works
    for _ in range(FREE_ENDS + 2):
        ledger_db.ago(tables.task.c.due_at, 1, first)
        owner = lease.next_owner()
        verdict = ledger_db.settle(
            ledger_db.claimed(first, owner, fence=ledger_db.task(first).fence), owner, outcome
        )
        seen.append((verdict, ledger_db.status(first), ledger_db.task(first).attempt))

    assert seen == [(Verdict.SETTLED, Status.PENDING, 0)] * FREE_ENDS + [
        (Verdict.RETRIED, Status.RETRYING, 1),
        (Verdict.DIED, Status.DEAD, 2),
    ]
    assert [order.destination for order in ledger_db.rows(tables.outbox)] == ["retry.1h", "dlq"]
