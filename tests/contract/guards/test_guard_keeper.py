"""How a raised guard ends, and how the tasks that it moved run again.

A guard ends by a look, by a prompt, by a person, or because nothing is left.
"""

import asyncio
from collections.abc import Iterable

import pytest
from sqlalchemy import delete

from docllm.agent.judge.guard_rule import FASTER
from docllm.agent.ledger.guards import look_search, looks
from docllm.agent.ports import ClaimAnswer, Verdict
from docllm.agent.ports.outcome import Failure, Snooze
from docllm.schemas.ledger import tables
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.states import Status
from tests.contract.guards.duty import (
    PROBE_S,
    ObservedKeeper,
    fail_as_a_whole,
    let_through,
    looking,
    patient,
    run_in_look,
    the,
)
from tests.contract.guards.steps import (
    ROUTE,
    claimed,
    deaths,
    end,
    ended,
    exhausted,
    moved_for_guard,
    raised,
)
from tests.support.ledger_database import (
    BATCH,
    RETRY,
    SPENT,
    SUCCEEDED,
    LedgerDatabase,
    new_task,
)


async def test_a_healthy_group_has_nothing_to_do(ledger_db: LedgerDatabase) -> None:
    """One pass finds no guard and stops nothing."""
    end(ledger_db, SUCCEEDED)
    keeper = ObservedKeeper(ledger_db)

    await keeper.keep_once()

    assert (keeper.orders, keeper.asked) == ([], [])
    assert keeper.guard_of(ledger_db, BATCH) is None


async def test_every_agent_learns_of_a_raised_guard(ledger_db: LedgerDatabase) -> None:
    """From the next pass on, the guard's tasks are stopped; those of another batch are not."""
    fail_as_a_whole(ledger_db)
    keeper = ObservedKeeper(ledger_db)

    await keeper.keep_once()

    assert keeper.guard_of(ledger_db, BATCH) is not None
    assert keeper.guard_of(ledger_db, "healthy") is None


async def test_a_task_in_hand_takes_the_place_once(ledger_db: LedgerDatabase) -> None:
    """Of all agents that offer a task for a free place, one wins.

    An agent whose answer was lost may ask again.
    """
    first, second, *_ = fail_as_a_whole(ledger_db, 14)
    guard = await looking(ledger_db, ObservedKeeper(ledger_db))

    def joins(task_id: int) -> bool:
        return ledger_db.run(lambda c: looks.join_look(c, guard.id, task_id))

    assert [joins(first), joins(second), joins(first)] == [True, False, True]
    assert the(raised(ledger_db)).look_left == 0


async def test_a_look_begins_once_though_many_agents_see_it_due(ledger_db: LedgerDatabase) -> None:
    """Two agents act at once: one of them asks the route and begins the look."""
    fail_as_a_whole(ledger_db)
    first, second = ObservedKeeper(ledger_db), ObservedKeeper(ledger_db)

    await asyncio.gather(first.keep_once(), second.keep_once())
    before = the(raised(ledger_db))
    await asyncio.gather(second.keep_once(), first.keep_once())

    assert len(first.asked + second.asked) == 1
    assert (before.look_left, before.look_at) == (1, the(raised(ledger_db)).look_at)


async def test_without_one_in_hand_the_task_that_is_due_first_is_called_up(
    ledger_db: LedgerDatabase,
) -> None:
    """The task's record is ordered on the main topic with the same fence.

    The task is due now, and it passes its guard.
    """
    _, first, *_ = moved_ones = fail_as_a_whole(ledger_db, 14)
    ledger_db.ago(tables.waiting.c.due_at, -60, first)
    keeper = ObservedKeeper(ledger_db)
    await looking(ledger_db, keeper)
    patient(ledger_db)

    await keeper.keep_once()
    await keeper.keep_once()

    assert len(moved_ones) == 4
    assert keeper.called == [first]
    assert ledger_db.rows(tables.guard_look)[0].task_id == first
    assert await keeper.guards.join_look_or_move(the(raised(ledger_db)), first) is None


async def test_a_place_that_is_just_free_is_left_to_tasks_in_hand(
    ledger_db: LedgerDatabase,
) -> None:
    """A task that an agent holds anyway needs no record, and no way through a long topic."""
    fail_as_a_whole(ledger_db)
    keeper = ObservedKeeper(ledger_db)
    await looking(ledger_db, keeper)

    await keeper.keep_once()

    assert keeper.called == []


async def test_a_successful_look_opens_the_guard_and_calls_up_its_moved_tasks(
    ledger_db: LedgerDatabase,
) -> None:
    """The tasks that the guard moved keep their own fences and are due now.

    Other waits stay as they are, and the look is forgotten.
    """
    first, *others = fail_as_a_whole(ledger_db, 14)
    retrying = claimed(ledger_db, 1)
    ended(ledger_db, retrying, RETRY)
    keeper = ObservedKeeper(ledger_db)
    await looking(ledger_db, keeper)
    let_through(ledger_db, first)
    run_in_look(ledger_db, first, SUCCEEDED)

    await keeper.keep_once()
    await keeper.keep_once()

    assert raised(ledger_db) == []
    assert sorted(keeper.called) == sorted(others)
    assert {
        ledger_db.claim(task_id, ledger_db.agent().next_owner(), fence=1) for task_id in others
    } == {ClaimAnswer.CLAIMED}
    assert ledger_db.due_in_s(retrying[0][0].task_id) > 20
    (entry,) = ledger_db.rows(tables.audit)
    assert (entry.actor, entry.detail.rpartition(": ")[2]) == (
        "docllm",
        "a task of its look succeeded",
    )
    assert ledger_db.count(tables.guard_look) == 0


async def test_the_success_of_another_task_opens_nothing(ledger_db: LedgerDatabase) -> None:
    """A task that ran before the guard was raised says nothing about later failures."""
    running = claimed(ledger_db, 1)
    fail_as_a_whole(ledger_db)
    ended(ledger_db, running, SUCCEEDED)

    await ObservedKeeper(ledger_db).keep_once()

    assert len(raised(ledger_db)) == 1


async def test_a_silent_route_is_asked_by_a_prompt_once_for_all_its_guards(
    ledger_db: LedgerDatabase,
) -> None:
    """Two batches wait for the same route, and the answer to one prompt opens both.

    Their last tasks can die then.
    """
    tasks = [claimed(ledger_db, 1, into=name) for name in ("one", "two")]
    for claim in tasks:
        ended(ledger_db, claim, exhausted())
    keeper = ObservedKeeper(ledger_db)

    await keeper.keep_once()
    await keeper.keep_once()
    await keeper.keep_once()

    assert keeper.asked == [ROUTE]
    assert raised(ledger_db) == []
    ids = [claim[0][0].task_id for claim in tasks]
    assert sorted(keeper.called) == sorted(ids)
    for task_id in ids:
        run_in_look(ledger_db, task_id, exhausted())
    assert deaths(ledger_db) == 2


async def test_a_route_that_does_not_answer_stays_closed(ledger_db: LedgerDatabase) -> None:
    """The next prompt is five minutes later, whichever agent asks."""
    end(ledger_db, exhausted())
    first, second = (
        ObservedKeeper(ledger_db, answers=False),
        ObservedKeeper(ledger_db, answers=False),
    )

    for keeper in (first, second, first):
        await keeper.keep_once()
    assert (first.asked, second.asked, len(raised(ledger_db))) == ([ROUTE], [], 1)
    patient(ledger_db)
    await second.keep_once()

    assert second.asked == [ROUTE]


async def test_a_success_of_others_opens_the_guard_of_a_silent_route(
    ledger_db: LedgerDatabase,
) -> None:
    """Another batch's success is as good as a prompt."""
    end(ledger_db, exhausted())
    end(ledger_db, SUCCEEDED, into="another")
    keeper = ObservedKeeper(ledger_db, answers=False)

    await keeper.keep_once()

    assert (raised(ledger_db), keeper.asked) == ([], [])


async def test_the_answer_to_a_prompt_shows_that_the_route_works(ledger_db: LedgerDatabase) -> None:
    """The answer counts for another batch too, for ten minutes, but counts as nobody's task."""
    end(ledger_db, exhausted())
    await ObservedKeeper(ledger_db).keep_once()

    assert end(ledger_db, exhausted(), into="another") == [Verdict.SETTLED]
    assert {row.batch_id for row in ledger_db.rows(tables.tally) if row.outcome == "probe"} == {0}


def move(ledger_db: LedgerDatabase, task_ids: Iterable[int]) -> None:
    """Let the guard move these tasks."""
    owner = ledger_db.agent().next_owner()
    for task_id in task_ids:
        row = ledger_db.claimed(task_id, owner)
        ended(ledger_db, [(row, owner)], moved_for_guard(row))


async def called_up(ledger_db: LedgerDatabase, values: dict[str, bytes]) -> list[bytes]:
    """Let the guard move tasks with these values; return the keys of those that its look takes."""
    new = [new_task(key, value) for key, value in values.items()]
    accepted = ledger_db.accept(new, ledger_db.batch())
    fail_as_a_whole(ledger_db)
    move(ledger_db, accepted.new.values())
    keeper = ObservedKeeper(ledger_db)
    await looking(ledger_db, keeper)
    patient(ledger_db)
    await keeper.keep_once()
    return [ledger_db.task(task_id).task_key for task_id in keeper.called]


async def test_a_look_is_of_the_guards_own_route(ledger_db: LedgerDatabase) -> None:
    """Tasks of a batch may name other models, whose success would say nothing."""
    values = {"a": b"for another", "b": b"for this one"}

    assert await called_up(ledger_db, values) == [b"b"]


async def test_a_look_takes_tasks_whose_fallback_is_guarded(ledger_db: LedgerDatabase) -> None:
    """Tasks that begin on the route go first; the others would wait as long as the guard does."""
    values = {"a": b"for another", "b": b"falls back", "c": b"for this one"}

    assert await called_up(ledger_db, values) == [b"c"]
    for row in ledger_db.rows(tables.task):
        if row.task_key != b"b":
            ledger_db.set(tables.task, row.id, status=int(Status.CANCELLED))
    ledger_db.run(lambda c: c.execute(delete(tables.guard_look)))
    ledger_db.set(tables.guard, the(raised(ledger_db)).id, look_left=1)
    patient(ledger_db)
    keeper = ObservedKeeper(ledger_db)
    await keeper.keep_once()

    assert [ledger_db.task(task_id).task_key for task_id in keeper.called] == [b"b"]


async def test_a_look_finds_its_task_behind_many_of_other_routes(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One search is short; the next one goes on where it ended."""
    monkeypatch.setattr(look_search, "PAGE", 2)
    monkeypatch.setattr(look_search, "PAGES", 2)
    others = {f"other {number}": b"for another" for number in range(9)}
    new = [new_task(key, value) for key, value in {**others, "own": b"for this one"}.items()]
    accepted = ledger_db.accept(new, ledger_db.batch())
    for task_id in fail_as_a_whole(ledger_db):
        ledger_db.set(tables.task, task_id, status=int(Status.CANCELLED))
    move(ledger_db, accepted.new.values())
    keeper = ObservedKeeper(ledger_db)
    await looking(ledger_db, keeper)

    for _ in range(3):
        assert the(raised(ledger_db)).looking
        patient(ledger_db)
        await keeper.keep_once()

    assert [ledger_db.task(task_id).task_key for task_id in keeper.called] == [b"own"]


async def test_a_success_on_another_route_opens_no_guard(ledger_db: LedgerDatabase) -> None:
    """A task of the look may have run on its own route. The next look is due soon."""
    first, *_ = fail_as_a_whole(ledger_db)
    keeper = ObservedKeeper(ledger_db)
    await looking(ledger_db, keeper)
    let_through(ledger_db, first)
    run_in_look(ledger_db, first, SUCCEEDED, route="another")

    await keeper.keep_once()

    guard = the(raised(ledger_db))
    assert not guard.looking
    assert 0 < guard.next_look_in_s <= PROBE_S / FASTER


async def test_a_look_does_not_cut_an_attempts_own_wait_short(ledger_db: LedgerDatabase) -> None:
    """Only moved tasks are called up.

    A task that is retried later, or whose provider wants a pause, is due at its own time.
    """
    last = claimed(ledger_db, 12)
    retried, snoozed = claimed(ledger_db, 1), claimed(ledger_db, 1)
    ended(ledger_db, claimed(ledger_db, 1, into="healthy"), SUCCEEDED)
    ended(ledger_db, last, *[exhausted()] * 12)
    ended(ledger_db, retried, RETRY)
    ended(ledger_db, snoozed, Snooze(Failure(ErrorClass.RATE, "429"), SPENT, 60.0))
    for row, _ in last:
        ledger_db.set(tables.task, row.task_id, status=int(Status.CANCELLED))
    keeper = ObservedKeeper(ledger_db)
    await looking(ledger_db, keeper)
    patient(ledger_db)

    await keeper.keep_once()
    await keeper.keep_once()

    assert keeper.called == []
    assert 290 < the(raised(ledger_db)).next_look_in_s <= 300  # its look had nothing to try


async def test_waiting_tasks_join_a_look_if_no_task_was_moved(
    ledger_db: LedgerDatabase,
) -> None:
    """The reaper raises a guard for lost agents and moves nothing."""
    end(ledger_db, exhausted())
    ledger_db.set(tables.guard, the(raised(ledger_db)).id, route="", cause="worker_lost")
    for row in ledger_db.rows(tables.task):
        ledger_db.set(tables.task, row.id, status=int(Status.CANCELLED))
    (fresh,) = ledger_db.load("fresh")
    keeper = ObservedKeeper(ledger_db)
    await looking(ledger_db, keeper)
    patient(ledger_db)

    await keeper.keep_once()

    assert keeper.called == [fresh]
