"""How looks end a guard.

Looks double while the route works, tasks that fail in them die, and an outage kills no task.
"""

import pytest

from docllm.agent.judge.guard_rule import FASTER
from docllm.agent.ledger.leases.leasing import declare_lost
from docllm.agent.ledger.recovery import reaping
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.replay_progress import ReplayRequest
from docllm.producer.replay import tasks as replay_tasks
from docllm.schemas.ledger import tables
from docllm.schemas.task.states import Status
from tests.contract.guards.duty import (
    PROBE_S,
    ObservedKeeper,
    fail_as_a_whole,
    let_through,
    looking,
    run_in_look,
    the,
    whole_look,
)
from tests.contract.guards.steps import deaths, end, ended, exhausted, moved_for_route, raised
from tests.support.ledger_database import DEAD, GROUP, RETRY, SUCCEEDED, LedgerDatabase


async def test_a_guard_of_bad_tasks_ends_by_itself(ledger_db: LedgerDatabase) -> None:
    """Each look is twice as large as the one before and follows soon.

    Tasks that fail in a look die: 31 tasks in five looks.
    """
    waiting = fail_as_a_whole(ledger_db, 41)
    ledger_db.set(tables.guard, the(raised(ledger_db)).id, cause="exhausted")
    before, keeper = deaths(ledger_db), ObservedKeeper(ledger_db)
    sizes = []

    while waiting:
        sizes.append(await whole_look(ledger_db, keeper, waiting, exhausted()))
        waiting = waiting[sizes[-1] :]
        assert 20 < the(raised(ledger_db)).next_look_in_s <= 30
    ledger_db.ago(tables.guard.c.probe_at, 1)
    await keeper.keep_once()

    assert sizes == [1, 2, 4, 8, 16]
    assert deaths(ledger_db) - before == 31
    assert raised(ledger_db) == []
    assert ledger_db.rows(tables.audit)[-1].detail.endswith("none of its tasks is left")


async def test_the_route_is_asked_before_each_look(ledger_db: LedgerDatabase) -> None:
    """An answer or a success before the end of the last look proves nothing for the next one."""
    waiting = fail_as_a_whole(ledger_db, 20)
    keeper = ObservedKeeper(ledger_db)

    await whole_look(ledger_db, keeper, waiting, exhausted())
    await whole_look(ledger_db, keeper, waiting[1:], exhausted())

    assert len(keeper.asked) == 2


async def test_a_success_of_others_saves_the_prompt(ledger_db: LedgerDatabase) -> None:
    """Another batch's success is as much evidence about the route as an answered prompt."""
    fail_as_a_whole(ledger_db)
    end(ledger_db, SUCCEEDED, into="another")
    keeper = ObservedKeeper(ledger_db)

    guard = await looking(ledger_db, keeper)

    assert (keeper.asked, guard.vouched) == ([], True)


async def test_no_task_is_given_up_in_a_look_while_the_route_does_not_answer(
    ledger_db: LedgerDatabase,
) -> None:
    """One task is tried, fails, and waits again.

    The next look has one task and comes five minutes later.
    """
    first, *_ = fail_as_a_whole(ledger_db)
    before, keeper = deaths(ledger_db), ObservedKeeper(ledger_db, answers=False)

    assert await whole_look(ledger_db, keeper, [first], exhausted()) == 1

    guard = the(raised(ledger_db))
    assert (deaths(ledger_db), ledger_db.status(first)) == (before, Status.RETRYING)
    assert (guard.looking, guard.look_size) == (False, 1)
    assert 290 < guard.next_look_in_s <= 300


async def test_an_outage_between_looks_ends_the_doubling(ledger_db: LedgerDatabase) -> None:
    """The guard had reached looks of four tasks when the route stopped answering.

    The next look tries one task, which cannot die.
    """
    waiting = fail_as_a_whole(ledger_db, 40)
    keeper = ObservedKeeper(ledger_db)
    for _ in range(2):
        waiting = waiting[await whole_look(ledger_db, keeper, waiting, exhausted()) :]
    assert the(raised(ledger_db)).look_size == 4
    before, keeper.answers = deaths(ledger_db), False

    assert await whole_look(ledger_db, keeper, waiting, exhausted()) == 1

    assert deaths(ledger_db) == before
    assert the(raised(ledger_db)).look_size == 1


async def test_a_failed_attempt_with_others_left_is_as_expected(ledger_db: LedgerDatabase) -> None:
    """The task has attempts left: it waits in its own tier, and the look is over."""
    first, *_ = fail_as_a_whole(ledger_db)
    keeper = ObservedKeeper(ledger_db)

    await whole_look(ledger_db, keeper, [first], RETRY)

    assert ledger_db.status(first) is Status.RETRYING
    assert the(raised(ledger_db)).look_size == 2


async def test_a_death_of_its_own_input_is_as_expected(ledger_db: LedgerDatabase) -> None:
    """Such a death says nothing against the route; the next look has two tasks."""
    first, *_ = fail_as_a_whole(ledger_db)

    await whole_look(ledger_db, ObservedKeeper(ledger_db), [first], DEAD)

    assert the(raised(ledger_db)).look_size == 2


async def test_a_task_that_loses_its_agent_leaves_the_look(ledger_db: LedgerDatabase) -> None:
    """The task may kill every agent that takes it, and says nothing about its route."""
    first, *_ = fail_as_a_whole(ledger_db)
    keeper = ObservedKeeper(ledger_db)
    await looking(ledger_db, keeper)
    let_through(ledger_db, first)
    lease = ledger_db.agent()
    ledger_db.claimed(first, lease.next_owner(), fence=1)
    ledger_db.run(lambda c: declare_lost(c, lease.agent_id))
    await keeper.keep_once()
    heard_of = the(raised(ledger_db))

    assert ledger_db.run(lambda c: reaping.reset_orphans(c, GROUP, [first])).waiting == 1

    assert ledger_db.count(tables.guard_look) == 0
    assert await keeper.guards.join_look_or_move(heard_of, first) is not None
    await keeper.keep_once()
    guard = the(raised(ledger_db))
    assert (guard.looking, guard.look_size) == (False, 1)
    assert guard.next_look_in_s > 290


async def test_a_cancelled_task_does_not_count_and_another_takes_its_place(
    ledger_db: LedgerDatabase,
) -> None:
    """A task that was cancelled while it waited for its turn does not count for the look.

    The next look is due soon, not at once: perhaps it shows nothing either.
    """
    first, *_ = fail_as_a_whole(ledger_db)
    keeper = ObservedKeeper(ledger_db)
    await looking(ledger_db, keeper)
    let_through(ledger_db, first)
    ledger_db.set(tables.task, first, status=int(Status.CANCELLED), owner=0)

    await keeper.keep_once()

    guard = the(raised(ledger_db))
    assert (guard.looking, guard.look_size) == (False, 1)
    assert 0 < guard.next_look_in_s <= PROBE_S / FASTER


async def test_a_task_that_was_replayed_meanwhile_had_died_all_the_same(
    ledger_db: LedgerDatabase,
) -> None:
    """The task's risen fence shows that it died; it waits for a turn like the other tasks."""
    first, *_ = fail_as_a_whole(ledger_db)
    keeper = ObservedKeeper(ledger_db)
    await looking(ledger_db, keeper)
    let_through(ledger_db, first)
    run_in_look(ledger_db, first, exhausted())
    assert ledger_db.status(first) is Status.DEAD
    wish = ReplayRequest(Selection(), cap=3, rate=None)
    rows = [ledger_db.task(first)]
    ledger_db.run(lambda c: replay_tasks._to_pending(c, GROUP, wish, rows))

    await keeper.keep_once()

    assert ledger_db.status(first) is Status.PENDING
    assert the(raised(ledger_db)).look_size == 2


async def test_a_task_whose_route_was_closed_does_not_count(ledger_db: LedgerDatabase) -> None:
    """The task was moved without a call, so its look does not double."""
    first, *_ = fail_as_a_whole(ledger_db)
    keeper = ObservedKeeper(ledger_db)

    await whole_look(
        ledger_db,
        keeper,
        [first],
        moved_for_route(),
    )

    assert the(raised(ledger_db)).look_size == 1


async def test_a_task_that_was_dropped_from_a_late_look_cannot_die(
    ledger_db: LedgerDatabase,
) -> None:
    """The task waited for its turn for longer than `guard.probe_s`; the look ended without it."""
    first, *_ = fail_as_a_whole(ledger_db)
    before, keeper = deaths(ledger_db), ObservedKeeper(ledger_db)
    await looking(ledger_db, keeper)
    let_through(ledger_db, first)
    ledger_db.ago(tables.guard.c.look_at, PROBE_S + 1)
    await keeper.keep_once()
    assert not the(raised(ledger_db)).looking

    run_in_look(ledger_db, first, exhausted())

    assert (deaths(ledger_db), ledger_db.status(first)) == (before, Status.RETRYING)


async def test_a_call_that_takes_long_is_waited_for(ledger_db: LedgerDatabase) -> None:
    """A look does not end while a task of it runs: a provider may take ten minutes to time out."""
    first, *_ = fail_as_a_whole(ledger_db)
    keeper = ObservedKeeper(ledger_db)
    await looking(ledger_db, keeper)
    let_through(ledger_db, first)
    owner = ledger_db.agent().next_owner()
    row = ledger_db.claimed(first, owner, fence=1)
    ledger_db.ago(tables.guard.c.look_at, 2 * PROBE_S)

    await keeper.keep_once()
    ended(ledger_db, [(row, owner)], exhausted())

    assert the(raised(ledger_db)).looking
    assert ledger_db.status(first) is Status.DEAD


async def test_one_prompt_is_enough_for_the_guards_of_a_route(ledger_db: LedgerDatabase) -> None:
    """A release that fails on many batches asks the provider once, not once for each."""
    end(ledger_db, SUCCEEDED, into="healthy")
    for number in range(5):
        end(ledger_db, *[exhausted()] * 12, into=f"batch {number}")
    assert len(raised(ledger_db)) == 5
    keeper = ObservedKeeper(ledger_db)

    await keeper.keep_once()

    assert len(keeper.asked) == 1
    assert [(guard.looking, guard.vouched) for guard in raised(ledger_db)] == [(True, True)] * 5


# ---- agents that are lost over tasks


def guard_for_losses(ledger_db: LedgerDatabase, count: int) -> list[int]:
    """Raise a guard for waiting tasks over each of which two agents were lost; return the tasks."""
    tasks = ledger_db.load(*(f"killer {number}" for number in range(count)))
    end(ledger_db, exhausted(), into="batch")
    (guard,) = raised(ledger_db)
    ledger_db.set(tables.guard, guard.id, route="", cause="worker_lost")
    for task_id in tasks:
        ledger_db.set(tables.task, task_id, lease_losses=2)
    return tasks


def lose_agent_over(ledger_db: LedgerDatabase, *task_ids: int) -> tuple[int, int]:
    """Let an agent claim these tasks and be lost; return how many wait again and how many died."""
    lease = ledger_db.agent()
    for task_id in task_ids:
        ledger_db.claimed(task_id, lease.next_owner(), fence=ledger_db.task(task_id).fence)
    ledger_db.run(lambda c: declare_lost(c, lease.agent_id))
    tasks = ledger_db.run(lambda c: reaping.reset_orphans(c, GROUP, task_ids))
    return tasks.waiting, tasks.dead


async def test_looks_over_lost_agents_double_while_others_succeed(
    ledger_db: LedgerDatabase,
) -> None:
    """A task that kills its agent in a look is given up; a task outside the look is not.

    The next look has two tasks and comes five minutes later.
    """
    first, second, *_ = guard_for_losses(ledger_db, 4)
    end(ledger_db, SUCCEEDED, into="another")
    keeper = ObservedKeeper(ledger_db)
    await looking(ledger_db, keeper)
    let_through(ledger_db, first)

    assert lose_agent_over(ledger_db, first) == (0, 1)
    assert lose_agent_over(ledger_db, second) == (1, 0)

    await keeper.keep_once()
    guard = the(raised(ledger_db))
    assert (ledger_db.status(first), ledger_db.status(second)) == (Status.DEAD, Status.PENDING)
    assert (guard.looking, guard.look_size) == (False, 2)
    assert guard.next_look_in_s > 290
    assert keeper.asked == []


async def test_no_task_is_given_up_for_lost_agents_while_nothing_succeeds(
    ledger_db: LedgerDatabase,
) -> None:
    """A release that kills every agent must not empty a topic.

    A prompt would be no evidence about it.
    """
    first, *_ = guard_for_losses(ledger_db, 4)
    keeper = ObservedKeeper(ledger_db)
    await looking(ledger_db, keeper)
    let_through(ledger_db, first)

    assert lose_agent_over(ledger_db, first) == (1, 0)

    await keeper.keep_once()
    assert deaths(ledger_db) == 0
    assert the(raised(ledger_db)).look_size == 1


@pytest.mark.parametrize("answers", [True, False])
async def test_a_success_opens_the_guard_however_the_look_began(
    ledger_db: LedgerDatabase, *, answers: bool
) -> None:
    """A route that does not answer our prompt may still take the tasks."""
    first, *_ = fail_as_a_whole(ledger_db)
    keeper = ObservedKeeper(ledger_db, answers=answers)

    await whole_look(ledger_db, keeper, [first], SUCCEEDED)

    assert raised(ledger_db) == []
