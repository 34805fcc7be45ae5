"""The reaper resets the tasks of dead agents and takes nothing from a live lease.

It lets no bad release fill the dead-letter topic.
"""

from collections.abc import Callable

import pytest
from sqlalchemy import Connection

from docllm.agent.lease import Lease
from docllm.agent.ledger.claims import claiming
from docllm.agent.ledger.leases.leasing import declare_lost, stop
from docllm.agent.ledger.recovery import losses, reaping
from docllm.agent.ledger.recovery.reaping import ResetTasks
from docllm.agent.ports import ClaimAnswer, Row, Verdict
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.sql import utc_after
from docllm.schemas.task.states import Status
from tests.contract.support.ledger_dead import delivered, replayed
from tests.support.ledger_database import GROUP, SUCCEEDED, TOO_LONG, LedgerDatabase


def run_by(
    ledger_db: LedgerDatabase, lease: Lease, *keys: str, losses: int = 0
) -> list[tuple[Row, int]]:
    """Load tasks that were lost `losses` times before, and claim them under `lease`."""
    ids = ledger_db.load(*keys)
    for task_id in ids:
        ledger_db.set(tables.task, task_id, lease_losses=losses)
    owner = lease.next_owner()
    return [(ledger_db.claimed(task_id, owner), owner) for task_id in ids]


def lost_alone(ledger_db: LedgerDatabase, *keys: str, losses: int = 2) -> list[tuple[Row, int]]:
    """Load tasks with earlier losses, and lose each in an agent of its own; return their claims."""
    runs = []
    for key in keys:
        lease = ledger_db.agent()
        runs += run_by(ledger_db, lease, key, losses=losses)
        lose(ledger_db, lease)
    return runs


def reap_orphans(ledger_db: LedgerDatabase) -> tuple[int, int]:
    """Reset the tasks of agents that are gone; return how many wait again, and how many died."""
    orphans = ledger_db.call(reaping.orphans, GROUP)
    tasks = ledger_db.call(reaping.reset_orphans, GROUP, orphans)
    return tasks.waiting, tasks.dead


def reap_overdue(ledger_db: LedgerDatabase) -> tuple[int, int]:
    overdue = ledger_db.call(reaping.overdue, GROUP)
    tasks = ledger_db.call(reaping.reset_overdue, GROUP, overdue)
    return tasks.waiting, tasks.dead


def lose(ledger_db: LedgerDatabase, lease: Lease) -> None:
    assert ledger_db.call(declare_lost, lease.agent_id)


def test_tasks_of_a_lost_agent_wait_again(ledger_db: LedgerDatabase) -> None:
    """The tasks are due at once with the same fence, and the loss is counted.

    The owner stays, and an order waits for its grace.
    """
    lease = ledger_db.agent()
    ((row, owner),) = run_by(ledger_db, lease, "a")
    lose(ledger_db, lease)

    assert reap_orphans(ledger_db) == (1, 0)

    task = ledger_db.task(row.task_id)
    assert (task.status, task.owner, task.fence, task.attempt, task.lease_losses) == (
        Status.PENDING,
        owner,
        0,
        0,
        1,
    )
    (order,) = ledger_db.rows(tables.outbox)
    assert order.destination == "tasks"
    assert ledger_db.claim(row.task_id, ledger_db.agent().next_owner()) is ClaimAnswer.CLAIMED


@pytest.mark.parametrize("ending", [declare_lost, stop])
def test_claims_made_after_the_verdict_are_found_on_every_pass(
    ledger_db: LedgerDatabase, ending: Callable[[Connection, int], object]
) -> None:
    """Each pass checks all lost and stopped agents.

    So an agent that claims after it was declared lost, or after it stopped, leaves nothing behind.
    """
    lease = ledger_db.agent()
    ledger_db.call(ending, lease.agent_id)
    assert reap_orphans(ledger_db) == (0, 0)
    run_by(ledger_db, lease, "claimed later")

    assert reap_orphans(ledger_db) == (1, 0)


def test_a_live_agent_keeps_its_tasks(ledger_db: LedgerDatabase) -> None:
    """Neither another agent's loss nor a silent heartbeat takes a task away.

    Only a verdict does.
    """
    live, silent = ledger_db.agent(), ledger_db.agent()
    lose(ledger_db, ledger_db.agent())
    tasks = run_by(ledger_db, live, "a") + run_by(ledger_db, silent, "b")
    ledger_db.ago(tables.agent.c.seen_at, 3600, silent.agent_id)

    assert reap_orphans(ledger_db) == (0, 0)
    assert reap_overdue(ledger_db) == (0, 0)
    assert [ledger_db.status(row.task_id) for row, _ in tasks] == [Status.PROCESSING] * 2


def test_another_groups_tasks_are_not_this_reapers(ledger_db: LedgerDatabase) -> None:
    """A reaper resets the tasks of its own group only."""
    other = ledger_db.agent(group="other")
    (task_id,) = ledger_db.load("a", into="elsewhere", group="other")
    ledger_db.claimed(task_id, other.next_owner())
    lose(ledger_db, other)
    ledger_db.ago(tables.task.c.due_at, 1, task_id)

    assert reap_orphans(ledger_db) == reap_overdue(ledger_db) == (0, 0)
    assert ledger_db.status(task_id) is Status.PROCESSING


def test_a_task_past_the_time_of_its_claim_waits_again(ledger_db: LedgerDatabase) -> None:
    """A leaked claim of a living agent ends when its time is over, and not before."""
    (early, _), (late, _) = run_by(ledger_db, ledger_db.agent(), "early", "late")
    ledger_db.ago(tables.task.c.due_at, 1, late.task_id)

    assert reap_overdue(ledger_db) == (1, 0)
    assert ledger_db.status(early.task_id) is Status.PROCESSING
    assert ledger_db.status(late.task_id) is Status.PENDING


def test_the_reason_is_checked_again_under_the_lock(ledger_db: LedgerDatabase) -> None:
    """Tasks that changed between finding and resetting are left alone.

    They were settled, released, or claimed by a live agent.
    """
    lost, live = ledger_db.agent(), ledger_db.agent()
    (settled, owner), (released, _), (moved, _) = run_by(
        ledger_db, lost, "settled", "released", "moved"
    )
    lose(ledger_db, lost)
    orphans = ledger_db.call(reaping.orphans, GROUP)
    ledger_db.settle(settled, owner, SUCCEEDED)
    ledger_db.set(tables.task, released.task_id, status=int(Status.PENDING), owner=0)
    new_owner = live.next_owner()
    ledger_db.set(tables.task, moved.task_id, owner=new_owner)

    assert sorted(orphans) == [settled.task_id, released.task_id, moved.task_id]
    assert ledger_db.call(reaping.reset_orphans, GROUP, orphans) == ResetTasks(0, 0)
    assert ledger_db.status(settled.task_id) is Status.SUCCEEDED
    assert ledger_db.task(moved.task_id).owner == new_owner


def test_a_deadline_that_was_renewed_is_not_past(ledger_db: LedgerDatabase) -> None:
    """A task that was reaped and claimed again before the reset keeps its new claim."""
    lease = ledger_db.agent()
    ((row, _),) = run_by(ledger_db, lease, "a")
    ledger_db.ago(tables.task.c.due_at, 1, row.task_id)
    overdue = ledger_db.call(reaping.overdue, GROUP)
    reap_overdue(ledger_db)
    ledger_db.claimed(row.task_id, lease.next_owner())

    assert ledger_db.call(reaping.reset_overdue, GROUP, overdue) == ResetTasks(0, 0)
    assert ledger_db.task(row.task_id).lease_losses == 1


def test_the_paid_answer_of_a_lost_agent_still_counts(ledger_db: LedgerDatabase) -> None:
    """A late settle of a reaped task is accepted, because its owner stayed."""
    lease = ledger_db.agent()
    ((row, owner),) = run_by(ledger_db, lease, "a")
    lose(ledger_db, lease)
    reap_orphans(ledger_db)

    assert ledger_db.settle(row, owner, SUCCEEDED) is Verdict.SETTLED


def test_the_third_loss_is_death(ledger_db: LedgerDatabase) -> None:
    """A task over which three agents were lost is dead, with disposition worker_lost.

    It has a dead letter, an attempt, an order and a count.
    """
    (second, _), (third, _) = lost_alone(ledger_db, "second", losses=1) + lost_alone(
        ledger_db, "third", losses=2
    )

    assert reap_orphans(ledger_db) == (1, 1)

    assert ledger_db.task(second.task_id).lease_losses == 2
    dead = ledger_db.task(third.task_id)
    assert (dead.status, dead.owner, dead.attempt, dead.lease_losses, dead.fence) == (
        Status.DEAD,
        0,
        1,
        3,
        0,
    )
    (letter,) = ledger_db.rows(tables.dead_letter)
    assert (letter.task_id, letter.disposition, letter.error_class) == (
        third.task_id,
        "worker_lost",
        "WORKER_LOST",
    )
    assert letter.error_text == "3 agents were lost while they worked on it"
    assert [attempt.outcome for attempt in ledger_db.rows(tables.task_attempt)] == [
        "lost",
        "lost",
        "dead",
    ]
    assert {order.destination for order in ledger_db.rows(tables.outbox)} == {"tasks", "dlq"}
    assert (ledger_db.rows(tables.tally)[-1].outcome, ledger_db.rows(tables.tally)[-1].delta) == (
        "WORKER_LOST",
        1,
    )


def test_the_answer_after_death_is_superseded(ledger_db: LedgerDatabase) -> None:
    """Death by lost agents is final: the last owner's late answer is refused.

    It writes no result.
    """
    lease = ledger_db.agent()
    ((row, owner),) = run_by(ledger_db, lease, "a", losses=2)
    lose(ledger_db, lease)
    reap_orphans(ledger_db)

    assert ledger_db.settle(row, owner, SUCCEEDED) is Verdict.SUPERSEDED
    assert ledger_db.count(tables.task_result) == 0


def test_ten_deaths_in_ten_minutes_are_the_limit(ledger_db: LedgerDatabase) -> None:
    """Of many tasks lost for the third time at once, ten die and the others wait again."""
    lost_alone(ledger_db, *(f"task {number}" for number in range(25)))

    assert reap_orphans(ledger_db) == (15, 10)


def test_deaths_of_the_last_ten_minutes_are_counted(ledger_db: LedgerDatabase) -> None:
    """Earlier deaths use up the limit, until they are ten minutes old."""
    first, second, third = (
        [f"{name} {number}" for number in range(count)]
        for name, count in (("a", 8), ("b", 5), ("c", 4))
    )

    lost_alone(ledger_db, *first)
    assert reap_orphans(ledger_db) == (0, 8)
    lost_alone(ledger_db, *second)
    assert reap_orphans(ledger_db) == (3, 2)
    ledger_db.ago(tables.tally.c.created_at, 601)
    ledger_db.run(lambda c: c.execute(tables.guard.delete()))
    lost_alone(ledger_db, *third)
    assert reap_orphans(ledger_db) == (0, 4)


def test_beyond_the_limit_the_guard_is_raised(ledger_db: LedgerDatabase) -> None:
    """An eleventh death raises the guard of its batch and type instead, for every route.

    While the guard is raised, no task dies of lost agents.
    """
    lost_alone(ledger_db, *(f"task {number}" for number in range(11)))
    assert reap_orphans(ledger_db) == (1, 10)

    (guard,) = ledger_db.rows(tables.guard)
    ledger_db.ago(tables.tally.c.created_at, 601)
    lost_alone(ledger_db, "another")

    assert (guard.batch_id, guard.type, guard.route, guard.cause) == (
        ledger_db.batch().id,
        "document",
        "",
        "worker_lost",
    )
    assert guard.opened_at is None
    assert "died of lost agents" in guard.reason
    assert reap_orphans(ledger_db) == (1, 0)


def test_up_to_the_limit_no_guard_is_raised(ledger_db: LedgerDatabase) -> None:
    """Ten deaths may be ten poison tasks."""
    lost_alone(ledger_db, *(f"task {number}" for number in range(10)))

    assert reap_orphans(ledger_db) == (0, 10)
    assert ledger_db.count(tables.guard) == 0


def test_the_limit_is_each_groups_own(ledger_db: LedgerDatabase) -> None:
    """Deaths in another group use up nothing here."""
    here = ledger_db.agent()
    ids = ledger_db.load(
        *(f"task {number}" for number in range(10)), into="elsewhere", group="other"
    )
    for task_id in ids:
        lease = ledger_db.agent(group="other")
        ledger_db.claimed(task_id, lease.next_owner())
        ledger_db.set(tables.task, task_id, lease_losses=2)
        lose(ledger_db, lease)
    assert ledger_db.call(reaping.reset_orphans, "other", ids) == ResetTasks(0, 10)
    run_by(ledger_db, here, "a", losses=2)
    lose(ledger_db, here)

    assert reap_orphans(ledger_db) == (0, 1)


def test_a_cancelled_batch_ends_by_the_reaper(ledger_db: LedgerDatabase) -> None:
    """A task of a cancelled batch that lost its agent is cancelled.

    It is not published again, and no loss kills it.
    """
    lease = ledger_db.agent()
    (first, _), (third, _) = run_by(ledger_db, lease, "a") + run_by(ledger_db, lease, "b", losses=2)
    lose(ledger_db, lease)
    ledger_db.cancel()

    reap_orphans(ledger_db)

    assert [ledger_db.status(row.task_id) for row in (first, third)] == [Status.CANCELLED] * 2
    assert ledger_db.count(tables.outbox) == 0


def test_two_reapers_reset_a_task_once(ledger_db: LedgerDatabase) -> None:
    """The second reaper that found the same tasks finds nothing to reset."""
    lease = ledger_db.agent()
    run_by(ledger_db, lease, "a", "b")
    lose(ledger_db, lease)
    orphans = ledger_db.call(reaping.orphans, GROUP)

    assert ledger_db.call(reaping.reset_orphans, GROUP, orphans) == ResetTasks(2, 0)
    assert ledger_db.call(reaping.reset_orphans, GROUP, orphans) == ResetTasks(0, 0)
    assert ledger_db.count(tables.outbox) == 1


# ---- which task it was


def test_no_task_is_dead_of_a_loss_that_it_shared(ledger_db: LedgerDatabase) -> None:
    """One of several tasks that were lost together may be the cause.

    Nobody knows which one, so all of them wait again.
    """
    lease = ledger_db.agent()
    shared = run_by(ledger_db, lease, "a", "b", losses=2)
    lose(ledger_db, lease)

    assert reap_orphans(ledger_db) == (2, 0)
    assert [ledger_db.task(row.task_id).lease_losses for row, _ in shared] == [3, 3]
    assert {(row.task_id, row.agent_id) for row in ledger_db.rows(tables.task_loss)} == {
        (row.task_id, lease.agent_id) for row, _ in shared
    }


def test_a_task_that_is_found_later_was_not_alone(ledger_db: LedgerDatabase) -> None:
    """The tasks of a lost agent are found in pages, and a claim may come after the verdict."""
    lease = ledger_db.agent()
    (first, _), (second, _) = run_by(ledger_db, lease, "a", "b", losses=2)
    lose(ledger_db, lease)

    assert [
        ledger_db.call(reaping.reset_orphans, GROUP, [orphan.task_id]) for orphan in (first, second)
    ] == [ResetTasks(1, 0)] * 2


def test_no_task_is_blamed_for_an_agent_that_left(ledger_db: LedgerDatabase) -> None:
    """The agent drained while a handler did not end; its task waits again, however often."""
    lease = ledger_db.agent()
    ((row, _),) = run_by(ledger_db, lease, "a", losses=3)
    ledger_db.call(stop, lease.agent_id)

    assert reap_orphans(ledger_db) == (1, 0)
    assert ledger_db.task(row.task_id).lease_losses == 4


def test_a_claim_that_ran_out_three_times_is_death(ledger_db: LedgerDatabase) -> None:
    """The claim's own deadline shows which task it was, whatever else its agent does."""
    lease = ledger_db.agent()
    (late, _), _ = run_by(ledger_db, lease, "late", "other", losses=2)
    ledger_db.ago(tables.task.c.due_at, 1, late.task_id)

    assert reap_overdue(ledger_db) == (0, 1)


def test_losses_beside_the_culprit_are_taken_back(ledger_db: LedgerDatabase) -> None:
    """Tasks that shared two agents with the culprit get two losses back.

    A loss from another agent stays.
    """
    first, second, other = ledger_db.agent(), ledger_db.agent(), ledger_db.agent()
    ids = ledger_db.load("culprit", "beside", "also")
    for lease, members in ((other, ids[2:]), (first, ids), (second, ids)):
        owner = lease.next_owner()
        for member in members:
            ledger_db.claimed(member, owner)
        lose(ledger_db, lease)
        reap_orphans(ledger_db)
    last = ledger_db.agent()
    ledger_db.claimed(ids[0], last.next_owner())
    lose(ledger_db, last)
    assert [ledger_db.task(task_id).lease_losses for task_id in ids] == [2, 2, 3]
    assert reap_orphans(ledger_db) == (0, 1)

    assert [ledger_db.call(reaping.undo_losses, GROUP) for _ in range(2)] == [4, 0]

    assert [ledger_db.task(task_id).lease_losses for task_id in ids] == [3, 0, 1]
    assert [ledger_db.status(task_id) for task_id in ids] == [
        Status.DEAD,
        Status.PENDING,
        Status.PENDING,
    ]


def test_a_claim_tells_how_many_agents_were_lost_ever(ledger_db: LedgerDatabase) -> None:
    """A handler looks by it whether an earlier run has happened, so nothing takes it back.

    Neither does the end of the suspicion, nor an attempt that counts, nor a replay.
    """
    first, second = ledger_db.agent(), ledger_db.agent()
    ((row, _),) = run_by(ledger_db, first, "a")
    assert (row.losses, row.lease_losses) == (0, 0)
    lose(ledger_db, first)
    reap_orphans(ledger_db)
    ledger_db.set(tables.task, row.task_id, lease_losses=0)  # as if it was taken back
    again = ledger_db.claimed(row.task_id, second.next_owner())
    assert (again.losses, again.lease_losses) == (1, 0)
    lose(ledger_db, second)
    reap_orphans(ledger_db)
    owner = ledger_db.agent().next_owner()
    last = ledger_db.claimed(row.task_id, owner)
    assert (last.losses, last.lease_losses) == (2, 1)
    ledger_db.settle(last, owner, TOO_LONG)
    delivered(ledger_db)
    replayed(ledger_db)

    fresh = ledger_db.claimed(row.task_id, ledger_db.agent().next_owner(), fence=1)

    assert (fresh.losses, fresh.lease_losses) == (2, 0)


def test_nothing_is_taken_back_while_many_are_found(ledger_db: LedgerDatabase) -> None:
    """A release that kills its agents on every task must not be forgiven.

    Otherwise each death would give the other tasks their losses back, and they would start anew.
    """
    lease = ledger_db.agent()
    culprit, beside = run_by(ledger_db, lease, "culprit", "beside", losses=2)
    lose(ledger_db, lease)
    reap_orphans(ledger_db)
    last = ledger_db.agent()
    ledger_db.claimed(culprit[0].task_id, last.next_owner())
    lose(ledger_db, last)
    lost_alone(ledger_db, *(f"task {number}" for number in range(reaping.FEW_DEATHS)))
    assert reap_orphans(ledger_db) == (0, reaping.FEW_DEATHS + 1)

    assert ledger_db.call(reaping.undo_losses, GROUP) == 0
    ledger_db.ago(tables.tally.c.created_at, 601)
    assert ledger_db.call(reaping.undo_losses, GROUP) == 1

    assert ledger_db.task(beside[0].task_id).lease_losses == 2


def test_rows_of_losses_go_with_the_next_end_of_their_task(ledger_db: LedgerDatabase) -> None:
    """A task that ends kills no agent, so its rows are deleted.

    Rows that a late settle left, and rows older than a day, are deleted by the tidying.
    """
    lease = ledger_db.agent()
    ids = [row.task_id for row, _ in run_by(ledger_db, lease, "settled", "late", "old", "new")]
    lose(ledger_db, lease)
    reap_orphans(ledger_db)
    ledger_db.settled(ids[0], SUCCEEDED)
    assert [row.task_id for row in ledger_db.rows(tables.task_loss)] == ids[1:]

    ledger_db.set(tables.task, ids[1], lease_losses=0)
    day_ago = (
        tables.task_loss.update()
        .where(tables.task_loss.c.task_id == ids[2])
        .values(created_at=utc_after(-86401))
    )
    ledger_db.run(lambda c: c.execute(day_ago))

    assert ledger_db.run(losses.forget) == 2
    assert [row.task_id for row in ledger_db.rows(tables.task_loss)] == ids[3:]


def test_a_suspect_is_claimed_alone(ledger_db: LedgerDatabase) -> None:
    """A claim of many records leaves the crash suspect.

    If they were lost together, each would be charged with the other's loss.
    """
    suspect, other = ledger_db.load("suspect", "other")
    ledger_db.set(tables.task, suspect, lease_losses=2)
    records = [ledger_db.record(suspect), ledger_db.record(other)]
    owner = ledger_db.agent().next_owner()

    answers = ledger_db.call(claiming.claim, records, owner, 600.0)

    assert [answers[task_id][0] for task_id in (suspect, other)] == [
        ClaimAnswer.AGAIN,
        ClaimAnswer.CLAIMED,
    ]
    assert ledger_db.claim(suspect, ledger_db.agent().next_owner()) is ClaimAnswer.CLAIMED


def test_the_log_names_suspects_and_culprits(
    ledger_db: LedgerDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """A person sees which task is a crash suspect before it is dead."""
    (suspect, _), (dead, _) = lost_alone(ledger_db, "a", losses=1) + lost_alone(ledger_db, "b")

    reap_orphans(ledger_db)

    assert (
        f"task {suspect.task_id} of batch batch is a suspect: 2 agents were lost over it"
        in caplog.text
    )
    assert (
        f"task {dead.task_id} of batch batch died of its losses: 3 agents were lost over it"
        in caplog.text
    )
