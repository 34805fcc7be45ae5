"""How a raised guard ends, and how the tasks that it moved run again.

A guard ends by a look, by a prompt, by a person, or because nothing is left.
"""

import asyncio

from agent.ledger import guard_probes
from agent.outcome import Failure, Moved, Snooze
from agent.ports import Answer, Verdict
from schemas.ledger import tables
from schemas.task.states import Status
from tests.contract.ledger_guards import ROUTE, claimed, deaths, end, ended, exhausted, raised
from tests.contract.ledger_parts import BATCH, RETRY, SPENT, SUCCEEDED, Books, new_task
from tests.contract.ledger_probing import (
    Duty,
    fail_as_a_whole,
    let_through,
    looking,
    patient,
    run_probe,
    the,
)


async def test_a_healthy_group_has_nothing_to_do(books: Books) -> None:
    """One pass finds no guard and stops nothing."""
    end(books, SUCCEEDED)
    duty = Duty(books)

    await duty.look()

    assert (duty.orders, duty.asked) == ([], [])
    assert duty.stops(books, BATCH) is None


async def test_a_raised_guard_is_heard_of(books: Books) -> None:
    """From the next pass on, the guard's tasks are stopped; those of another batch are not."""
    fail_as_a_whole(books)
    duty = Duty(books)

    await duty.look()

    assert duty.stops(books, BATCH) is not None
    assert duty.stops(books, "healthy") is None


async def test_a_task_in_hand_takes_the_turn_once(books: Books) -> None:
    """Of all agents that offer a task for a free place, one wins.

    An agent whose answer was lost may ask again.
    """
    one, two, *_ = fail_as_a_whole(books, 14)
    guard = await looking(books, Duty(books))

    def turn(task_id: int) -> bool:
        return books.run(lambda c: guard_probes.take_turn(c, guard.id, task_id))

    assert [turn(one), turn(two), turn(one)] == [True, False, True]
    assert the(raised(books)).look_left == 0


async def test_a_look_begins_once_though_many_agents_see_it_due(books: Books) -> None:
    """Two agents act at once: one of them asks the route and begins the look."""
    fail_as_a_whole(books)
    first, second = Duty(books), Duty(books)

    await asyncio.gather(first.look(), second.look())
    before = the(raised(books))
    await asyncio.gather(second.look(), first.look())

    assert len(first.asked + second.asked) == 1
    assert (before.look_left, before.look_at) == (1, the(raised(books)).look_at)


async def test_without_one_in_hand_the_task_that_is_due_first_is_called_up(books: Books) -> None:
    """The task's record is ordered on the main topic with the same fence.

    The task is due now, and it passes its guard.
    """
    _, first, *_ = moved_ones = fail_as_a_whole(books, 14)
    books.ago(tables.task.c.due_at, -60, first)
    duty = Duty(books)
    await looking(books, duty)
    patient(books)

    await duty.look()
    await duty.look()

    assert len(moved_ones) == 4
    assert duty.called == [first]
    assert books.rows(tables.guard_look)[0].task_id == first
    assert await duty.guards.moved(the(raised(books)), first) is None


async def test_a_place_that_is_just_free_is_left_to_tasks_in_hand(books: Books) -> None:
    """A task that an agent holds anyway needs no record, and no way through a long topic."""
    fail_as_a_whole(books)
    duty = Duty(books)
    await looking(books, duty)

    await duty.look()

    assert duty.called == []


async def test_the_success_of_a_look_opens_the_guard_and_calls_up_what_it_moved(
    books: Books,
) -> None:
    """The tasks that the guard moved keep their own fences and are due now.

    Other waits stay as they are, and the look is forgotten.
    """
    one, *others = fail_as_a_whole(books, 14)
    retrying = claimed(books, 1)
    ended(books, retrying, RETRY)
    duty = Duty(books)
    await looking(books, duty)
    let_through(books, one)
    run_probe(books, one, SUCCEEDED)

    await duty.look()
    await duty.look()

    assert raised(books) == []
    assert sorted(duty.called) == sorted(others)
    assert {books.claim(task_id, books.agent().next_owner(), fence=1) for task_id in others} == {
        Answer.CLAIMED
    }
    assert books.due_in_s(retrying[0][0].task_id) > 20
    (entry,) = books.rows(tables.audit)
    assert (entry.actor, entry.detail.rpartition(": ")[2]) == (
        "docllm",
        "a task of its look succeeded",
    )
    assert books.count(tables.guard_look) == 0


async def test_the_success_of_another_task_opens_nothing(books: Books) -> None:
    """A task that ran before the guard was raised says nothing about later failures."""
    running = claimed(books, 1)
    fail_as_a_whole(books)
    ended(books, running, SUCCEEDED)

    await Duty(books).look()

    assert len(raised(books)) == 1


async def test_a_silent_route_is_asked_by_a_prompt_once_for_all_its_guards(books: Books) -> None:
    """Two batches wait for the same route, and the answer to one prompt opens both.

    Their last tasks can die then.
    """
    tasks = [claimed(books, 1, into=name) for name in ("one", "two")]
    for claim in tasks:
        ended(books, claim, exhausted())
    duty = Duty(books)

    await duty.look()
    await duty.look()
    await duty.look()

    assert duty.asked == [ROUTE]
    assert raised(books) == []
    ids = [claim[0][0].task_id for claim in tasks]
    assert sorted(duty.called) == sorted(ids)
    for task_id in ids:
        run_probe(books, task_id, exhausted())
    assert deaths(books) == 2


async def test_a_route_that_does_not_answer_stays_closed(books: Books) -> None:
    """The next prompt is five minutes later, whichever agent asks."""
    end(books, exhausted())
    first, second = Duty(books, answers=False), Duty(books, answers=False)

    for duty in (first, second, first):
        await duty.look()
    assert (first.asked, second.asked, len(raised(books))) == ([ROUTE], [], 1)
    patient(books)
    await second.look()

    assert second.asked == [ROUTE]


async def test_a_success_of_others_opens_the_guard_of_a_silent_route(books: Books) -> None:
    """Another batch's success is as good as a prompt."""
    end(books, exhausted())
    end(books, SUCCEEDED, into="another")
    duty = Duty(books, answers=False)

    await duty.look()

    assert (raised(books), duty.asked) == ([], [])


async def test_the_answer_to_a_prompt_vouches_for_the_route(books: Books) -> None:
    """The answer counts for another batch too, for ten minutes, but counts as nobody's task."""
    end(books, exhausted())
    await Duty(books).look()

    assert end(books, exhausted(), into="another") == [Verdict.SETTLED]
    assert {row.batch_id for row in books.rows(tables.tally) if row.outcome == "probe"} == {0}


async def test_a_probe_is_of_the_guards_own_route(books: Books) -> None:
    """Tasks of a batch may name other models, whose success would say nothing."""
    values = {"a": b"for another", "b": b"for this one"}
    new = [new_task(key, value) for key, value in values.items()]
    accepted = books.accept(new, books.batch())
    fail_as_a_whole(books)
    owner = books.agent().next_owner()
    for task_id in accepted.new.values():
        ended(
            books,
            [(books.claimed(task_id, owner), owner)],
            Moved(Failure("GUARD", "it is raised"), SPENT, "1h", 60.0),
        )
    duty = Duty(books)
    await looking(books, duty)
    patient(books)

    await duty.look()

    assert [books.task(task_id).task_key for task_id in duty.called] == [b"b"]


async def test_a_probe_does_not_cut_an_attempts_own_wait_short(books: Books) -> None:
    """Only moved tasks are called up.

    A task that is retried later, or whose provider wants a pause, is due at its own time.
    """
    last = claimed(books, 12)
    retried, snoozed = claimed(books, 1), claimed(books, 1)
    ended(books, claimed(books, 1, into="healthy"), SUCCEEDED)
    ended(books, last, *[exhausted()] * 12)
    ended(books, retried, RETRY)
    ended(books, snoozed, Snooze(Failure("RATE", "429"), SPENT, 60.0))
    for row, _ in last:
        books.set(tables.task, row.task_id, status=int(Status.CANCELLED))
    duty = Duty(books)
    await looking(books, duty)
    patient(books)

    await duty.look()
    await duty.look()

    assert duty.called == []
    assert 290 < the(raised(books)).probe_due_s <= 300  # its look had nothing to try


async def test_waiting_tasks_are_probes_where_none_was_moved(books: Books) -> None:
    """The reaper raises a guard for lost agents and moves nothing."""
    end(books, exhausted())
    books.set(tables.guard, the(raised(books)).id, route="", cause="worker_lost")
    for row in books.rows(tables.task):
        books.set(tables.task, row.id, status=int(Status.CANCELLED))
    (fresh,) = books.load("fresh")
    duty = Duty(books)
    await looking(books, duty)
    patient(books)

    await duty.look()

    assert duty.called == [fresh]
