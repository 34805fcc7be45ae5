"""How a raised guard ends by a probe or a prompt, and how its moved tasks run again."""

from agent.ledger import probe, reap
from agent.ledger.lease import declare_lost
from agent.outcome import Failure, Moved, Snooze
from agent.ports import Answer, Verdict
from schemas import tables
from schemas.task import Status
from tests.contract.ledger_guards import ROUTE, claimed, deaths, end, ended, exhausted, raised
from tests.contract.ledger_parts import BATCH, DEAD, GROUP, RETRY, SPENT, SUCCEEDED, Books, new_task
from tests.contract.ledger_probing import PROBE_S, Duty, fail_as_a_whole, let_through, patient, run_probe, the


async def test_a_healthy_group_has_nothing_to_do(books: Books) -> None:
    """One look finds no guard, and stops nothing."""
    end(books, SUCCEEDED)
    duty = Duty(books)

    await duty.look()

    assert (duty.orders, duty.asked) == ([], [])
    assert duty.stops(books, BATCH) is None


async def test_a_raised_guard_is_heard_of(books: Books) -> None:
    """From the next look on, its tasks are stopped; those of another batch are not."""
    fail_as_a_whole(books)
    duty = Duty(books)

    await duty.look()

    assert duty.stops(books, BATCH) is not None
    assert duty.stops(books, "healthy") is None


async def test_a_task_in_hand_takes_the_turn_once(books: Books) -> None:
    """One of the agents that offer a task wins; the next turn is five minutes later.

    A lost answer may be requested again.
    """
    fail_as_a_whole(books)
    guard = the(raised(books))

    def turn(task_id: int) -> bool:
        return books.run(lambda c: probe.take_turn(c, guard.id, task_id, PROBE_S))

    assert [turn(1), turn(2), turn(1)] == [True, False, True]
    assert 290 < the(raised(books)).probe_due_s <= 300
    assert the(raised(books)).probe_task == 1
    patient(books)
    assert turn(2)


async def test_without_one_in_hand_the_task_that_is_due_first_is_called_up(books: Books) -> None:
    """The task's record is ordered on the main topic with the same fence.

    The task is due now, and it passes its guard.
    """
    _, first, *_ = moved_ones = fail_as_a_whole(books, 14)
    books.ago(tables.task.c.due_at, -60, first)
    patient(books)
    duty = Duty(books)

    await duty.look()
    await duty.look()

    assert len(moved_ones) == 4
    assert duty.called == [first]
    assert the(raised(books)).probe_task == first
    assert await duty.guards.moved(the(raised(books)), first) is None


async def test_a_probe_that_is_just_due_is_left_to_tasks_in_hand(books: Books) -> None:
    """A task that an agent has anyway needs no record, and no way through a long topic."""
    fail_as_a_whole(books)
    duty = Duty(books)

    await duty.look()

    assert duty.called == []


async def test_the_success_of_the_probe_opens_the_guard_and_calls_up_what_it_moved(books: Books) -> None:
    """Each task keeps its fence and is due now, after a few looks.

    The counting begins anew.
    """
    one, *others = fail_as_a_whole(books, 14)
    retrying = claimed(books, 1)
    ended(books, retrying, RETRY)
    let_through(books, one)
    run_probe(books, one, SUCCEEDED)
    duty = Duty(books)

    await duty.look()
    await duty.look()

    assert raised(books) == []
    assert sorted(duty.called) == sorted(others)
    assert {books.claim(task_id, books.agent().next_owner(), fence=1) for task_id in others} == {Answer.CLAIMED}
    assert books.due_in_s(retrying[0][0].task_id) > 20
    (entry,) = books.rows(tables.audit)
    assert (entry.actor, entry.detail.rpartition(": ")[2]) == ("docllm", "its probe succeeded")


async def test_the_success_of_another_task_opens_nothing(books: Books) -> None:
    """A task that ran before the guard was raised says nothing about later failures."""
    running = claimed(books, 1)
    fail_as_a_whole(books)
    ended(books, running, SUCCEEDED)

    await Duty(books).look()

    assert len(raised(books)) == 1


async def test_a_probe_that_fails_is_moved_again_and_the_guard_stays(books: Books) -> None:
    """The probe's attempts stay used up: it waits, uncounted, until the next probe."""
    one, *_ = fail_as_a_whole(books)
    let_through(books, one)
    before = deaths(books)
    run_probe(books, one, exhausted())
    duty = Duty(books)

    await duty.look()

    assert (deaths(books), books.status(one), duty.called) == (before, Status.RETRYING, [])
    assert the(raised(books)).probe_in_s > 200
    assert the(raised(books)).probe_task == 0


async def test_a_probe_that_loses_its_agent_is_stopped_like_the_others(books: Books) -> None:
    """A task that kills its process would kill every agent that takes it again."""
    one, *_ = fail_as_a_whole(books)
    let_through(books, one)
    lease = books.agent()
    books.claimed(one, lease.next_owner(), fence=1)
    books.run(lambda c: declare_lost(c, lease.agent_id))
    duty = Duty(books)

    await duty.look()
    heard_of = the(raised(books))
    assert heard_of.probe_task == one

    assert books.run(lambda c: reap.reset_orphans(c, GROUP, [one])) == (1, 0)

    assert the(raised(books)).probe_task == 0
    assert await duty.guards.moved(heard_of, one) is not None


async def test_a_probe_that_dies_of_its_own_input_is_followed_at_once(books: Books) -> None:
    """Such a probe says nothing about the other tasks."""
    one, *_ = fail_as_a_whole(books)
    let_through(books, one)
    run_probe(books, one, DEAD)

    await Duty(books).look()

    assert the(raised(books)).probe_in_s <= 0
    assert the(raised(books)).probe_task == 0


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
        ended(books, [(books.claimed(task_id, owner), owner)], Moved(Failure("GUARD", "it is raised"), SPENT, "1h", 60.0))
    patient(books)
    duty = Duty(books)

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
    patient(books)
    duty = Duty(books)

    await duty.look()

    assert duty.called == []
    assert the(raised(books))


async def test_waiting_tasks_are_probes_where_none_was_moved(books: Books) -> None:
    """The reaper raises a guard for lost agents and moves nothing."""
    end(books, exhausted())
    books.set(tables.guard, the(raised(books)).id, route="", cause="worker_lost")
    for row in books.rows(tables.task):
        books.set(tables.task, row.id, status=int(Status.CANCELLED))
    (fresh,) = books.load("fresh")
    patient(books)
    duty = Duty(books)

    await duty.look()

    assert duty.called == [fresh]
