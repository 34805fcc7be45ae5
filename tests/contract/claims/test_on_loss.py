"""A task of a type with `on_loss = "dead"` does not run again after its agent was lost."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from sqlalchemy import update

from docllm.agent.judge import fingerprint
from docllm.agent.lease import Lease
from docllm.agent.ledger.claims import claiming
from docllm.agent.ledger.leases.leasing import declare_lost, stop
from docllm.agent.ledger.recovery import on_loss, reaping
from docllm.agent.ledger.recovery.reaping import ResetTasks
from docllm.agent.ports import ClaimAnswer, Row, Verdict
from docllm.agent.ports.outcome import Dead, Failure, Succeeded
from docllm.producer.ledger import hook_orders, task_story
from docllm.producer.ledger.retention import archive_lines
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.sql import utc_after
from docllm.schemas.task.failures import Disposition, ErrorClass, may_have_finished
from docllm.schemas.task.hooks import HookEvent
from docllm.schemas.task.result.codec import COMPLETION
from docllm.schemas.task.states import Status
from tests.contract.support.ledger_dead import delivered, replayed
from tests.support.handlers import completion
from tests.support.ledger_database import BATCH, DEAD, GROUP, RETRY, SPENT, LedgerDatabase

TYPE = "document"
UNSEEN = Dead(
    Failure(ErrorClass.WORKER_LOST, may_have_finished("it stopped")), SPENT, Disposition.WORKER_LOST
)
LATE = Succeeded(completion("Paid.").body, COMPLETION, SPENT)


@pytest.fixture(autouse=True)
def stored(ledger_db: LedgerDatabase) -> None:
    """An agent has stored that tasks of this type do not run twice."""
    ledger_db.call(on_loss.store, GROUP, [TYPE])


def claimed(ledger_db: LedgerDatabase, lease: Lease, *keys: str) -> list[tuple[Row, int]]:
    owner = lease.next_owner()
    return [(ledger_db.claimed(task_id, owner), owner) for task_id in ledger_db.load(*keys)]


def orphaned(ledger_db: LedgerDatabase, lease: Lease) -> ResetTasks:
    """Lose an agent, and reset its tasks."""
    ledger_db.call(declare_lost, lease.agent_id)
    return ledger_db.call(reaping.reset_orphans, GROUP, ledger_db.call(reaping.orphans, GROUP))


def overdue(ledger_db: LedgerDatabase, _lease: Lease) -> ResetTasks:
    """Let all claims run out, and reset their tasks."""
    ledger_db.ago(tables.task.c.due_at, 1)
    return ledger_db.call(reaping.reset_overdue, GROUP, ledger_db.call(reaping.overdue, GROUP))


def stopped(ledger_db: LedgerDatabase, lease: Lease) -> ResetTasks:
    """Let an agent stop that leaves a handler behind, and reset its tasks."""
    ledger_db.call(stop, lease.agent_id)
    return ledger_db.call(reaping.reset_orphans, GROUP, ledger_db.call(reaping.orphans, GROUP))


Lose = Callable[[LedgerDatabase, Lease], ResetTasks]


def seen_ago(ledger_db: LedgerDatabase, seconds: float) -> None:
    change = update(tables.hook_type).values(seen_at=utc_after(-seconds))
    ledger_db.run(lambda c: c.execute(change))


@pytest.mark.parametrize(
    ("lose", "why"),
    [
        (orphaned, "its agent was lost while it ran"),
        (stopped, "its agent was lost while it ran"),
        (overdue, "its claim was overdue, so the task was taken from its agent"),
    ],
)
def test_a_task_that_was_cut_off_is_dead(ledger_db: LedgerDatabase, lose: Lose, why: str) -> None:
    """It has a dead letter that says what nobody knows, and its record is finished with."""
    lease = ledger_db.agent("host:1")
    ((row, _),) = claimed(ledger_db, lease, "a")

    assert lose(ledger_db, lease) == ResetTasks(0, 0, not_again=1)

    task, (letter,) = ledger_db.task(row.task_id), ledger_db.rows(tables.dead_letter)
    assert (task.status, task.owner, task.attempt, task.lease_losses, task.losses) == (
        Status.DEAD,
        0,
        1,
        0,
        1,
    )
    assert (letter.error_class, letter.disposition, letter.attempts) == (
        "WORKER_LOST",
        "worker_lost",
        1,
    )
    assert letter.error_text == may_have_finished(why)
    assert letter.error_text.startswith("it may have finished")
    assert [(order.destination, order.group_name) for order in ledger_db.rows(tables.outbox)] == [
        ("dlq", GROUP)
    ]
    attempts = ledger_db.rows(tables.task_attempt)
    assert [(each.outcome, each.error_class) for each in attempts] == [
        ("lost", "AGENT_LOST"),
        ("dead", "WORKER_LOST"),
    ]
    assert ledger_db.claim(row.task_id, ledger_db.agent().next_owner()) is ClaimAnswer.DONE


def test_other_types_and_groups_run_again(ledger_db: LedgerDatabase) -> None:
    """What an agent of another group has stored holds for that group."""
    ledger_db.run(lambda c: c.execute(update(tables.hook_type).values(group_name="other")))
    ledger_db.call(on_loss.store, GROUP, ["payment"])
    lease = ledger_db.agent()
    claimed(ledger_db, lease, "a")

    assert orphaned(ledger_db, lease) == ResetTasks(1, 0)


@pytest.mark.parametrize(
    ("stored_ago_s", "claimed_ago_s", "reset"),
    [
        (200_000, 180_000, ResetTasks(0, 0, not_again=1)),
        (200_000, 100_000, ResetTasks(1, 0)),
        (100_000, 180_000, ResetTasks(0, 0, not_again=1)),
    ],
)
def test_the_settings_at_the_time_of_the_claim_hold(
    ledger_db: LedgerDatabase, stored_ago_s: float, claimed_ago_s: float, reset: ResetTasks
) -> None:
    """A group that stood still for days forgets nothing that its lost agents had stored."""
    lease = ledger_db.agent()
    ((row, _),) = claimed(ledger_db, lease, "a")
    seen_ago(ledger_db, stored_ago_s)
    ledger_db.ago(tables.task.c.claimed_at, claimed_ago_s, row.task_id)

    assert overdue(ledger_db, lease) == reset


def test_a_task_of_a_cancelled_batch_is_dead_too(ledger_db: LedgerDatabase) -> None:
    """A replay of the batch's cancelled tasks must not run it again unseen."""
    lease = ledger_db.agent()
    ((row, _),) = claimed(ledger_db, lease, "a")
    ledger_db.cancel()

    orphaned(ledger_db, lease)

    assert ledger_db.status(row.task_id) is Status.DEAD


def test_its_hook_is_ordered(ledger_db: LedgerDatabase) -> None:
    """`on_dead` may look whether the task had finished."""
    ledger_db.call(hook_orders.store_names, GROUP, [(TYPE, HookEvent.DEAD)])
    lease = ledger_db.agent()
    claimed(ledger_db, lease, "a")

    orphaned(ledger_db, lease)

    (hook,) = ledger_db.rows(tables.hook)
    assert (hook.event, hook.status, hook.error_class, hook.attempts) == (
        "dead",
        "dead",
        "WORKER_LOST",
        1,
    )
    assert hook.error_text.startswith("it may have finished")


def test_a_task_that_no_agent_runs_is_not_dead(ledger_db: LedgerDatabase) -> None:
    """A claim that was given back, and an attempt that failed, are no losses."""
    lease = ledger_db.agent()
    (given_back, owner), (failed, _) = claimed(ledger_db, lease, "back", "failed")
    ledger_db.call(claiming.release, owner, [given_back.task_id])
    ledger_db.settle(failed, owner, RETRY)

    assert orphaned(ledger_db, lease) == ResetTasks(0, 0)
    assert ledger_db.claim(given_back.task_id, ledger_db.agent().next_owner()) is (
        ClaimAnswer.CLAIMED
    )


def test_a_run_that_its_own_agent_cut_off_is_a_loss(ledger_db: LedgerDatabase) -> None:
    """A replay runs the task again, and the handler may look whether it has happened."""
    lease = ledger_db.agent()
    (stopped, owner), (gave_up, other) = claimed(ledger_db, lease, "stopped", "gave up")
    ledger_db.settle(stopped, owner, UNSEEN)
    ledger_db.settle(gave_up, other, DEAD)

    assert [ledger_db.task(row.task_id).losses for row in (stopped, gave_up)] == [1, 0]


def guilty_deaths(ledger_db: LedgerDatabase, *keys: str) -> list[ResetTasks]:
    """Lose tasks of another type, each alone in an agent, for the third time."""
    resets = []
    for key in keys:
        lease = ledger_db.agent()
        ((row, _),) = claimed(ledger_db, lease, key)
        ledger_db.set(tables.task, row.task_id, type="poison", lease_losses=2)
        resets.append(orphaned(ledger_db, lease))
    return resets


@pytest.mark.parametrize("by_settle", [False, True])
def test_such_deaths_speak_against_no_release(
    ledger_db: LedgerDatabase, *, by_settle: bool
) -> None:
    """However many there are, tasks that kill their agents die, and no guard is raised."""
    lease = ledger_db.agent()
    runs = claimed(ledger_db, lease, *map(str, range(11)))
    if by_settle:
        for row, owner in runs:
            assert ledger_db.settle(row, owner, UNSEEN) is Verdict.SETTLED
    else:
        assert orphaned(ledger_db, lease).not_again == len(runs)

    assert guilty_deaths(ledger_db, "poison") == [ResetTasks(0, 1)]
    assert ledger_db.count(tables.guard) == 0


def test_its_loss_blames_no_task_beside_it_and_clears_none(ledger_db: LedgerDatabase) -> None:
    """A suspect that ran beside it was not alone; nobody knows which of the two it was."""
    lease = ledger_db.agent()
    (_, (beside, _)) = claimed(ledger_db, lease, "a", "beside")
    ledger_db.set(tables.task, beside.task_id, type="other", lease_losses=2)

    assert orphaned(ledger_db, lease) == ResetTasks(1, 0, not_again=1)

    assert ledger_db.call(reaping.undo_losses, GROUP) == 0
    assert ledger_db.task(beside.task_id).lease_losses == 3


def replies(ledger_db: LedgerDatabase) -> Sequence[tuple[str, str]]:
    """Return how each attempt ended, and what is kept of its answer."""
    story = ledger_db.call(task_story.story, GROUP, BATCH, "a")
    assert story is not None
    return [(each.outcome, each.reply) for each in story.history]


@pytest.mark.parametrize("lose", [orphaned, overdue])
def test_a_late_answer_is_kept_and_changes_nothing(ledger_db: LedgerDatabase, lose: Lose) -> None:
    """An agent that was only slow tells what it has; a second try of its settle adds nothing."""
    lease = ledger_db.agent()
    (row, owner), (other, _) = claimed(ledger_db, lease, "a", "other")
    ledger_db.set(tables.task, other.task_id, type="other")
    lose(ledger_db, lease)
    before = ledger_db.task(row.task_id)

    for _ in range(2):
        assert ledger_db.settle(row, owner, LATE) is Verdict.SUPERSEDED
    assert ledger_db.settle(row, owner + 1, LATE) is Verdict.SUPERSEDED
    assert ledger_db.settle(row, owner, UNSEEN) is Verdict.SUPERSEDED

    assert replies(ledger_db) == [("lost", "Paid."), ("dead", "")]
    assert ledger_db.count(tables.reply) == 1
    (archived,) = ledger_db.call(archive_lines.read_lines, [row.task_id])
    assert [each.get("reply") for each in orjson.loads(archived.raw)["attempts"]] == ["Paid.", None]
    assert ledger_db.task(row.task_id) == before
    assert ledger_db.settle(other, owner, LATE) is Verdict.SETTLED


def test_a_replay_runs_it_again_and_it_may_be_cut_off_again(ledger_db: LedgerDatabase) -> None:
    """Whoever replays it has looked; its handler sees that it was lost before."""
    lease = ledger_db.agent()
    ((row, owner),) = claimed(ledger_db, lease, "a")
    orphaned(ledger_db, lease)
    ledger_db.settle(row, owner, LATE)
    delivered(ledger_db)
    replayed(ledger_db)
    second = ledger_db.agent()

    again = ledger_db.claimed(row.task_id, second.next_owner(), fence=1)

    assert (again.losses, again.counted_before) == (1, 0)
    assert ledger_db.settle(replace(row, fence=1), owner, LATE) is Verdict.SUPERSEDED
    assert orphaned(ledger_db, second) == ResetTasks(0, 0, not_again=1)
    assert replies(ledger_db)[0] == ("lost", "Paid.")


def test_all_such_deaths_are_one_group_of_failures() -> None:
    """A person sees them beside each other, and replays them by one fingerprint."""
    texts: list[Any] = [may_have_finished(why) for why in ("", "it stopped", 'it "died"')]

    assert len({fingerprint(ErrorClass.WORKER_LOST, text) for text in texts}) == 1
