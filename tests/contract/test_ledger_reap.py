"""The reaper resets the tasks of dead agents and takes nothing from a live lease.

It lets no bad release fill the dead-letter topic.
"""

import pytest

from agent.lease import Lease
from agent.ledger import claims, losses, reaping
from agent.ledger.leases import declare_lost, stop
from agent.ports import Answer, Row, Verdict
from schemas.ledger import tables
from schemas.ledger.sql import utc_after
from schemas.task.states import Status
from tests.contract.ledger_parts import GROUP, SUCCEEDED, Books


def run_by(books: Books, lease: Lease, *keys: str, losses: int = 0) -> list[tuple[Row, int]]:
    """Load tasks that were lost `losses` times before, and claim them under `lease`."""
    ids = books.load(*keys)
    for one in ids:
        books.set(tables.task, one, lease_losses=losses)
    owner = lease.next_owner()
    return [(books.claimed(one, owner), owner) for one in ids]


def lost_alone(books: Books, *keys: str, losses: int = 2) -> list[tuple[Row, int]]:
    """Load tasks with earlier losses, and lose each in an agent of its own; return their claims."""
    found = []
    for key in keys:
        lease = books.agent()
        found += run_by(books, lease, key, losses=losses)
        lose(books, lease)
    return found


def reap_orphans(books: Books) -> tuple[int, int]:
    found = books.run(lambda c: reaping.orphans(c, GROUP))
    return books.run(lambda c: reaping.reset_orphans(c, GROUP, found))


def reap_overdue(books: Books) -> tuple[int, int]:
    found = books.run(lambda c: reaping.overdue(c, GROUP))
    return books.run(lambda c: reaping.reset_overdue(c, GROUP, found))


def lose(books: Books, lease: Lease) -> None:
    assert books.run(lambda c: declare_lost(c, lease.agent_id))


def test_tasks_of_a_lost_agent_wait_again(books: Books) -> None:
    """The tasks are due at once with the same fence, and the loss is counted.

    The owner stays, and an order waits for its grace.
    """
    lease = books.agent()
    ((row, owner),) = run_by(books, lease, "a")
    lose(books, lease)

    assert reap_orphans(books) == (1, 0)

    found = books.task(row.task_id)
    assert (found.status, found.owner, found.fence, found.attempt, found.lease_losses) == (
        Status.PENDING,
        owner,
        0,
        0,
        1,
    )
    (order,) = books.rows(tables.outbox)
    assert order.destination == "tasks"
    assert books.claim(row.task_id, books.agent().next_owner()) is Answer.CLAIMED


@pytest.mark.parametrize("ending", [declare_lost, stop])
def test_claims_made_after_the_verdict_are_found_on_every_pass(
    books: Books, ending: object
) -> None:
    """Each pass checks all lost and stopped agents.

    So an agent that claims after it was declared lost, or after it stopped, leaves nothing behind.
    """
    lease = books.agent()
    books.run(lambda c: ending(c, lease.agent_id))
    assert reap_orphans(books) == (0, 0)
    run_by(books, lease, "claimed later")

    assert reap_orphans(books) == (1, 0)


def test_a_live_agent_keeps_its_tasks(books: Books) -> None:
    """Neither another agent's loss nor a silent heartbeat takes a task away.

    Only a verdict does.
    """
    live, silent = books.agent(), books.agent()
    lose(books, books.agent())
    tasks = run_by(books, live, "a") + run_by(books, silent, "b")
    books.ago(tables.agent.c.seen_at, 3600, silent.agent_id)

    assert reap_orphans(books) == (0, 0)
    assert reap_overdue(books) == (0, 0)
    assert [books.status(row.task_id) for row, _ in tasks] == [Status.PROCESSING] * 2


def test_another_groups_tasks_are_not_this_reapers(books: Books) -> None:
    """A reaper resets the tasks of its own group only."""
    other = books.agent(group="other")
    (one,) = books.load("a", into="elsewhere", group="other")
    books.claimed(one, other.next_owner())
    lose(books, other)
    books.ago(tables.task.c.due_at, 1, one)

    assert reap_orphans(books) == reap_overdue(books) == (0, 0)
    assert books.status(one) is Status.PROCESSING


def test_a_task_past_its_hard_deadline_waits_again(books: Books) -> None:
    """A leaked claim of a living agent ends at the attempt's hard deadline, and not before."""
    (early, _), (late, _) = run_by(books, books.agent(), "early", "late")
    books.ago(tables.task.c.due_at, 1, late.task_id)

    assert reap_overdue(books) == (1, 0)
    assert books.status(early.task_id) is Status.PROCESSING
    assert books.status(late.task_id) is Status.PENDING


def test_the_reason_is_checked_again_under_the_lock(books: Books) -> None:
    """Tasks that changed between finding and resetting are left alone.

    They were settled, released, or claimed by a live agent.
    """
    lost, live = books.agent(), books.agent()
    (settled, owner), (released, _), (moved, _) = run_by(
        books, lost, "settled", "released", "moved"
    )
    lose(books, lost)
    found = books.run(lambda c: reaping.orphans(c, GROUP))
    books.settle(settled, owner, SUCCEEDED)
    books.set(tables.task, released.task_id, status=int(Status.PENDING), owner=0)
    new_owner = live.next_owner()
    books.set(tables.task, moved.task_id, owner=new_owner)

    assert sorted(found) == [settled.task_id, released.task_id, moved.task_id]
    assert books.run(lambda c: reaping.reset_orphans(c, GROUP, found)) == (0, 0)
    assert books.status(settled.task_id) is Status.SUCCEEDED
    assert books.task(moved.task_id).owner == new_owner


def test_a_deadline_that_was_renewed_is_not_past(books: Books) -> None:
    """A task that was reaped and claimed again before the reset keeps its new claim."""
    lease = books.agent()
    ((row, _),) = run_by(books, lease, "a")
    books.ago(tables.task.c.due_at, 1, row.task_id)
    found = books.run(lambda c: reaping.overdue(c, GROUP))
    reap_overdue(books)
    books.claimed(row.task_id, lease.next_owner())

    assert books.run(lambda c: reaping.reset_overdue(c, GROUP, found)) == (0, 0)
    assert books.task(row.task_id).lease_losses == 1


def test_the_paid_answer_of_a_lost_agent_still_counts(books: Books) -> None:
    """A late settle of a reaped task is accepted, because its owner stayed."""
    lease = books.agent()
    ((row, owner),) = run_by(books, lease, "a")
    lose(books, lease)
    reap_orphans(books)

    assert books.settle(row, owner, SUCCEEDED) is Verdict.SETTLED


def test_the_third_loss_is_death(books: Books) -> None:
    """A task over which three agents were lost is dead, with disposition worker_lost.

    It has a dead letter, an attempt, an order and a count.
    """
    (second, _), (third, _) = lost_alone(books, "second", losses=1) + lost_alone(
        books, "third", losses=2
    )

    assert reap_orphans(books) == (1, 1)

    assert books.task(second.task_id).lease_losses == 2
    dead = books.task(third.task_id)
    assert (dead.status, dead.owner, dead.attempt, dead.lease_losses, dead.fence) == (
        Status.DEAD,
        0,
        1,
        3,
        0,
    )
    (letter,) = books.rows(tables.dead_letter)
    assert (letter.task_id, letter.disposition, letter.error_class) == (
        third.task_id,
        "worker_lost",
        "WORKER_LOST",
    )
    assert letter.error_text == "3 agents were lost while they worked on it"
    assert [attempt.outcome for attempt in books.rows(tables.task_attempt)] == ["dead"]
    assert {order.destination for order in books.rows(tables.outbox)} == {"tasks", "dlq"}
    assert (books.rows(tables.tally)[-1].outcome, books.rows(tables.tally)[-1].delta) == (
        "WORKER_LOST",
        1,
    )


def test_the_answer_after_death_is_fenced(books: Books) -> None:
    """Death by lost agents is final: the last owner's late answer is refused.

    It writes no result.
    """
    lease = books.agent()
    ((row, owner),) = run_by(books, lease, "a", losses=2)
    lose(books, lease)
    reap_orphans(books)

    assert books.settle(row, owner, SUCCEEDED) is Verdict.FENCED
    assert books.count(tables.task_result) == 0


def test_ten_deaths_in_ten_minutes_are_the_limit(books: Books) -> None:
    """Of many tasks lost for the third time at once, ten die and the others wait again."""
    lost_alone(books, *(f"task {number}" for number in range(25)))

    assert reap_orphans(books) == (15, 10)


def test_deaths_of_the_last_ten_minutes_are_counted(books: Books) -> None:
    """Earlier deaths use up the limit, until they are ten minutes old."""
    first, second, third = (
        [f"{name} {number}" for number in range(count)]
        for name, count in (("a", 8), ("b", 5), ("c", 4))
    )

    lost_alone(books, *first)
    assert reap_orphans(books) == (0, 8)
    lost_alone(books, *second)
    assert reap_orphans(books) == (3, 2)
    books.ago(tables.tally.c.created_at, 601)
    books.run(lambda c: c.execute(tables.guard.delete()))
    lost_alone(books, *third)
    assert reap_orphans(books) == (0, 4)


def test_beyond_the_limit_the_guard_is_raised(books: Books) -> None:
    """An eleventh death raises the guard of its batch and type instead, for every route.

    While the guard is raised, no task dies of lost agents.
    """
    lost_alone(books, *(f"task {number}" for number in range(11)))
    assert reap_orphans(books) == (1, 10)

    (guard,) = books.rows(tables.guard)
    books.ago(tables.tally.c.created_at, 601)
    lost_alone(books, "another")

    assert (guard.batch_id, guard.type, guard.route, guard.cause) == (
        books.batch().id,
        "document",
        "",
        "worker_lost",
    )
    assert guard.opened_at is None
    assert "lost 3 agents each" in guard.reason
    assert reap_orphans(books) == (1, 0)


def test_up_to_the_limit_no_guard_is_raised(books: Books) -> None:
    """Ten deaths may be ten poison tasks."""
    lost_alone(books, *(f"task {number}" for number in range(10)))

    assert reap_orphans(books) == (0, 10)
    assert books.count(tables.guard) == 0


def test_the_limit_is_each_groups_own(books: Books) -> None:
    """Deaths in another group use up nothing here."""
    here = books.agent()
    ids = books.load(*(f"task {number}" for number in range(10)), into="elsewhere", group="other")
    for one in ids:
        there = books.agent(group="other")
        books.claimed(one, there.next_owner())
        books.set(tables.task, one, lease_losses=2)
        lose(books, there)
    assert books.run(lambda c: reaping.reset_orphans(c, "other", ids)) == (0, 10)
    run_by(books, here, "a", losses=2)
    lose(books, here)

    assert reap_orphans(books) == (0, 1)


def test_a_cancelled_batch_ends_by_the_reaper(books: Books) -> None:
    """A task of a cancelled batch that lost its agent is cancelled.

    It is not published again, and no loss kills it.
    """
    lease = books.agent()
    (first, _), (third, _) = run_by(books, lease, "a") + run_by(books, lease, "b", losses=2)
    lose(books, lease)
    books.cancel()

    reap_orphans(books)

    assert [books.status(row.task_id) for row in (first, third)] == [Status.CANCELLED] * 2
    assert books.count(tables.outbox) == 0


def test_two_reapers_reset_a_task_once(books: Books) -> None:
    """The second reaper that found the same tasks finds nothing to reset."""
    lease = books.agent()
    run_by(books, lease, "a", "b")
    lose(books, lease)
    found = books.run(lambda c: reaping.orphans(c, GROUP))

    assert books.run(lambda c: reaping.reset_orphans(c, GROUP, found)) == (2, 0)
    assert books.run(lambda c: reaping.reset_orphans(c, GROUP, found)) == (0, 0)
    assert books.count(tables.outbox) == 1


# ---- which task it was


def test_no_task_is_dead_of_a_loss_that_it_shared(books: Books) -> None:
    """One of several tasks that were lost together may be the cause.

    Nobody knows which one, so all of them wait again.
    """
    lease = books.agent()
    shared = run_by(books, lease, "a", "b", losses=2)
    lose(books, lease)

    assert reap_orphans(books) == (2, 0)
    assert [books.task(row.task_id).lease_losses for row, _ in shared] == [3, 3]
    assert {(row.task_id, row.agent_id) for row in books.rows(tables.task_loss)} == {
        (row.task_id, lease.agent_id) for row, _ in shared
    }


def test_a_task_that_is_found_later_was_not_alone(books: Books) -> None:
    """The tasks of a lost agent are found in pages, and a claim may come after the verdict."""
    lease = books.agent()
    (first, _), (second, _) = run_by(books, lease, "a", "b", losses=2)
    lose(books, lease)

    assert [
        books.run(lambda c, one=one: reaping.reset_orphans(c, GROUP, [one.task_id]))
        for one in (first, second)
    ] == [(1, 0)] * 2


def test_an_agent_that_left_was_killed_by_nobody(books: Books) -> None:
    """The agent drained while a handler did not end; its task waits again, however often."""
    lease = books.agent()
    ((row, _),) = run_by(books, lease, "a", losses=3)
    books.run(lambda c: stop(c, lease.agent_id))

    assert reap_orphans(books) == (1, 0)
    assert books.task(row.task_id).lease_losses == 4


def test_a_claim_that_ran_out_three_times_is_death(books: Books) -> None:
    """The claim's own deadline shows which task it was, whatever else its agent does."""
    lease = books.agent()
    (late, _), _ = run_by(books, lease, "late", "other", losses=2)
    books.ago(tables.task.c.due_at, 1, late.task_id)

    assert reap_overdue(books) == (0, 1)


def test_losses_beside_the_culprit_are_taken_back(books: Books) -> None:
    """Tasks that shared two agents with the culprit get two losses back.

    A loss from another agent stays.
    """
    first, second, other = books.agent(), books.agent(), books.agent()
    ids = books.load("culprit", "beside", "also")
    for lease, members in ((other, ids[2:]), (first, ids), (second, ids)):
        owner = lease.next_owner()
        for one in members:
            books.claimed(one, owner)
        lose(books, lease)
        reap_orphans(books)
    last = books.agent()
    books.claimed(ids[0], last.next_owner())
    lose(books, last)
    assert [books.task(one).lease_losses for one in ids] == [2, 2, 3]
    assert reap_orphans(books) == (0, 1)

    assert [books.run(lambda c: reaping.absolve(c, GROUP)) for _ in range(2)] == [4, 0]

    assert [books.task(one).lease_losses for one in ids] == [3, 0, 1]
    assert [books.status(one) for one in ids] == [Status.DEAD, Status.PENDING, Status.PENDING]


def test_nothing_is_taken_back_while_many_are_found(books: Books) -> None:
    """A release that kills its agents on every task must not be forgiven.

    Otherwise each death would give the other tasks their losses back, and they would start anew.
    """
    lease = books.agent()
    culprit, beside = run_by(books, lease, "culprit", "beside", losses=2)
    lose(books, lease)
    reap_orphans(books)
    last = books.agent()
    books.claimed(culprit[0].task_id, last.next_owner())
    lose(books, last)
    lost_alone(books, *(f"task {number}" for number in range(reaping.FEW_DEATHS)))
    assert reap_orphans(books) == (0, reaping.FEW_DEATHS + 1)

    assert books.run(lambda c: reaping.absolve(c, GROUP)) == 0
    books.ago(tables.tally.c.created_at, 601)
    assert books.run(lambda c: reaping.absolve(c, GROUP)) == 1

    assert books.task(beside[0].task_id).lease_losses == 2


def test_rows_of_losses_go_with_the_next_end_of_their_task(books: Books) -> None:
    """A task that ends kills no agent, so its rows are deleted.

    Rows that a late settle left, and rows older than a day, are deleted by the tidying.
    """
    lease = books.agent()
    ids = [row.task_id for row, _ in run_by(books, lease, "settled", "late", "old", "new")]
    lose(books, lease)
    reap_orphans(books)
    owner = books.agent().next_owner()
    books.settle(books.claimed(ids[0], owner), owner, SUCCEEDED)
    assert [row.task_id for row in books.rows(tables.task_loss)] == ids[1:]

    books.set(tables.task, ids[1], lease_losses=0)
    day_ago = (
        tables.task_loss.update()
        .where(tables.task_loss.c.task_id == ids[2])
        .values(created_at=utc_after(-86401))
    )
    books.run(lambda c: c.execute(day_ago))

    assert books.run(losses.forget) == 2
    assert [row.task_id for row in books.rows(tables.task_loss)] == ids[3:]


def test_a_suspect_is_claimed_alone(books: Books) -> None:
    """A claim of many records leaves the crash suspect.

    If they were lost together, each would be charged with the other's loss.
    """
    suspect, other = books.load("suspect", "other")
    books.set(tables.task, suspect, lease_losses=2)
    records = [books.record(suspect), books.record(other)]
    owner = books.agent().next_owner()

    answers = books.run(lambda c: claims.claim(c, records, owner, 600.0))

    assert [answers[one][0] for one in (suspect, other)] == [Answer.AGAIN, Answer.CLAIMED]
    assert books.claim(suspect, books.agent().next_owner()) is Answer.CLAIMED


def test_the_log_names_suspects_and_culprits(
    books: Books, caplog: pytest.LogCaptureFixture
) -> None:
    """A person sees which task is a crash suspect before it is dead."""
    (suspect, _), (dead, _) = lost_alone(books, "a", losses=1) + lost_alone(books, "b")

    reap_orphans(books)

    assert (
        f"task {suspect.task_id} of batch batch is a suspect: 2 agents were lost over it"
        in caplog.text
    )
    assert (
        f"task {dead.task_id} of batch batch is dead of it: 3 agents were lost over it"
        in caplog.text
    )
