"""How a raised guard ends: by a probe, by a prompt, by a person, or because nothing is left; and what it had moved runs again."""

from collections.abc import Sequence

from agent.guard import Guards
from agent.guarding import MOST, Guarding
from agent.ledger import probe, reap
from agent.ledger.lease import declare_lost
from agent.outcome import Failure, Moved, Snooze
from agent.policy.guard import ROUTE_CLOSED, moved
from agent.ports import Answer, Order, Row, Verdict
from producer import guards as rows
from producer.guards import Guard
from schemas import tables
from schemas.clock import SystemClock
from schemas.lanes import InlineLane
from schemas.task import Status
from tests.contract.ledger_guards import ROUTE, claimed, deaths, end, ended, exhausted, open_all, raised
from tests.contract.ledger_parts import BATCH, DEAD, GROUP, LONGEST, RETRY, SPENT, SUCCEEDED, Books, new_task

PROBE_S = 300.0


class Duty:
    """The duty of one agent, and what it did."""

    def __init__(self, books: Books, *, answers: bool = True) -> None:
        self.orders: list[Order] = []
        self.asked: list[str] = []
        self.answers = answers
        self.guards = Guards(clock=SystemClock(), longest_tier=LONGEST, take_turn=self._take_turn)
        self.duty = Guarding(
            database=books.database,
            lane=InlineLane(),
            clock=SystemClock(),
            group=GROUP,
            guards=self.guards,
            probe_s=PROBE_S,
            ask=self._ask,
            route_of=lambda value: "another" if b"another" in value else ROUTE,
            ordered=self._ordered,
        )
        self._books = books

    async def look(self) -> None:
        """Look once, and let what it began end."""
        await self.duty.look()
        for one in list(self.duty._asking):
            await one

    async def _ask(self, route: str) -> bool:
        self.asked.append(route)
        return self.answers

    async def _take_turn(self, guard_id: int, task_id: int) -> bool:
        return self._books.run(lambda c: probe.take_turn(c, guard_id, task_id, PROBE_S))

    def _ordered(self, orders: Sequence[Order]) -> None:
        self.orders += orders

    def stops(self, books: Books, batch: str) -> Guard | None:
        """Return what stops a fresh task of a batch."""
        ((row, _),) = claimed(books, 1, into=batch)
        return self.guards.stops(row, ROUTE)

    @property
    def called(self) -> list[int]:
        """Return the tasks for which records were ordered."""
        assert {order.destination for order in self.orders} <= {"tasks"}
        return [item[1] for order in self.orders for item in order.items]


def fail_as_a_whole(books: Books, count: int = 12) -> list[int]:
    """Raise the guard of the batch; return the tasks that it moved."""
    failing = claimed(books, count)
    ended(books, claimed(books, 1, into="healthy"), SUCCEEDED)
    ended(books, failing, *[exhausted()] * count)
    return [row.task_id for row, _ in failing if books.status(row.task_id) is Status.RETRYING]


def patient(books: Books) -> None:
    """Let a probe be due for longer than agents are given to offer one that they have in hand."""
    books.ago(tables.guard.c.probe_at, 4)


def the(found: Sequence[Guard]) -> Guard:
    (one,) = found
    return one


def let_through(books: Books, task_id: int) -> None:
    """Make a task the probe, and let its wait be over."""
    guard = the(raised(books))
    assert books.run(lambda c: probe.take_turn(c, guard.id, task_id, PROBE_S))
    books.ago(tables.task.c.due_at, 1, task_id)


def run_probe(books: Books, task_id: int, *outcome: object) -> None:
    """Claim the task as an agent does, and let it end so."""
    owner = books.agent().next_owner()
    row = books.claimed(task_id, owner, fence=books.task(task_id).fence)
    ended(books, [(row, owner)], *outcome)  # type: ignore[arg-type]


async def test_a_healthy_group_has_nothing_to_do(books: Books) -> None:
    """One look finds no guard, and stops nothing."""
    end(books, SUCCEEDED)
    duty = Duty(books)

    await duty.look()

    assert (duty.orders, duty.asked) == ([], [])
    assert duty.stops(books, BATCH) is None


async def test_a_raised_guard_is_heard_of(books: Books) -> None:
    """From the next look on its tasks are stopped, those of another batch are not."""
    fail_as_a_whole(books)
    duty = Duty(books)

    await duty.look()

    assert duty.stops(books, BATCH) is not None
    assert duty.stops(books, "healthy") is None


async def test_a_task_in_hand_takes_the_turn_once(books: Books) -> None:
    """Of all agents that offer one, one wins; the next turn is five minutes later; a lost answer may be asked for again."""
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
    """Its record is ordered on the main topic with the same fence, it is due now, and it passes its guard."""
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
    """A task that an agent holds anyway needs no record, and no way through a long topic."""
    fail_as_a_whole(books)
    duty = Duty(books)

    await duty.look()

    assert duty.called == []


async def test_the_success_of_the_probe_opens_the_guard_and_calls_up_what_it_moved(books: Books) -> None:
    """Each with its own fence, due now, and in one look of the next seconds; the counting begins anew."""
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
    """What ran already when the guard was raised says nothing about what failed since."""
    running = claimed(books, 1)
    fail_as_a_whole(books)
    ended(books, running, SUCCEEDED)

    await Duty(books).look()

    assert len(raised(books)) == 1


async def test_a_probe_that_fails_is_moved_again_and_the_guard_stays(books: Books) -> None:
    """Its attempts are used up and stay so: it waits, uncounted, and the next probe comes when it is time."""
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
    """It told nothing about the others."""
    one, *_ = fail_as_a_whole(books)
    let_through(books, one)
    run_probe(books, one, DEAD)

    await Duty(books).look()

    assert the(raised(books)).probe_in_s <= 0
    assert the(raised(books)).probe_task == 0


async def test_a_silent_route_is_asked_by_a_prompt_once_for_all_its_guards(books: Books) -> None:
    """Two batches wait for the same route: one prompt, whose answer opens both, and their last tasks can die."""
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
    """Somebody else's task is as good as a prompt."""
    end(books, exhausted())
    end(books, SUCCEEDED, into="another")
    duty = Duty(books, answers=False)

    await duty.look()

    assert (raised(books), duty.asked) == ([], [])


async def test_the_answer_to_a_prompt_vouches_for_the_route(books: Books) -> None:
    """For another batch too, for ten minutes, and it counts as nobody's task."""
    end(books, exhausted())
    await Duty(books).look()

    assert end(books, exhausted(), into="another") == [Verdict.SETTLED]
    assert {row.batch_id for row in books.rows(tables.tally) if row.outcome == "probe"} == {0}


async def test_a_guard_with_nothing_left_is_opened(books: Books) -> None:
    """A batch that was cancelled, or whose last task has ended, has nothing that a guard could hold back."""
    end(books, exhausted())
    for row in books.rows(tables.task):
        books.set(tables.task, row.id, status=int(Status.CANCELLED))
    duty = Duty(books, answers=False)

    await duty.look()

    assert (raised(books), duty.asked) == ([], [])
    assert books.rows(tables.audit)[-1].detail.endswith("nothing of it is left")


async def test_while_a_task_runs_something_is_left(books: Books) -> None:
    """It may fail as the others did; the guard is looked at again in some seconds."""
    running = claimed(books, 1)
    end(books, exhausted())
    for row in books.rows(tables.task):
        if row.id != running[0][0].task_id:
            books.set(tables.task, row.id, status=int(Status.CANCELLED))

    await Duty(books).look()

    assert 5 < the(raised(books)).probe_due_s <= 10


async def test_a_probe_is_of_the_guards_own_route(books: Books) -> None:
    """Tasks of a batch may name other models; the success of one of those would say nothing."""
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
    """A task that is tried again later, or whose provider wants a pause, is due at its time; only what was moved is called up."""
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
    """A guard for lost agents is raised by the reaper, which moves nothing."""
    end(books, exhausted())
    books.set(tables.guard, the(raised(books)).id, route="", cause="worker_lost")
    for row in books.rows(tables.task):
        books.set(tables.task, row.id, status=int(Status.CANCELLED))
    (fresh,) = books.load("fresh")
    patient(books)
    duty = Duty(books)

    await duty.look()

    assert duty.called == [fresh]


async def test_an_opened_guard_calls_up_many_over_several_looks(books: Books) -> None:
    """Some pages a second, so that nothing else waits for it; then its row says that it is done."""
    count = 2 * probe.PAGE + 100
    ids = books.load(*(f"many {number}" for number in range(count)))
    fail_as_a_whole(books)
    owner = books.agent().next_owner()
    rows_of = [row for _, row in books.answers([books.record(one) for one in ids], owner).values() if row is not None]
    stopped: list[tuple[Row, Moved]] = [(row, moved(Failure("GUARD", "why"), SPENT, LONGEST, row.task_id)) for row in rows_of]
    ended(books, [(row, owner) for row, _ in stopped], *[outcome for _, outcome in stopped])
    open_all(books)
    duty = Duty(books)

    await duty.look()

    assert len(duty.called) == len(set(duty.called))
    assert set(ids) <= set(duty.called)
    assert (await look_at(books, duty)) is None
    books.ago(tables.guard.c.opened_at, 11)
    await duty.look()
    assert await look_at(books, duty) is not None
    assert books.run(lambda c: rows.read(c, GROUP)) == []


async def look_at(books: Books, duty: Duty) -> object:
    (row,) = books.rows(tables.guard)
    return row.called_at


async def test_many_guards_are_looked_after_in_turn(books: Books) -> None:
    """A release that fails on hundreds of batches costs each agent a bounded number of questions a second."""
    books.run(lambda c: c.execute(tables.batch.insert(), [{"name": f"b{number}", "group_name": GROUP} for number in range(3 * MOST)]))
    guards = [{"group_name": GROUP, "batch_id": row.id, "type": "document", "cause": "exhausted"} for row in books.rows(tables.batch)]
    books.run(lambda c: c.execute(tables.guard.insert(), guards))
    duty = Duty(books)

    left = []
    for _ in range(3):
        await duty.look()
        left.append(len(raised(books)))

    assert left == [2 * MOST, MOST, 0]


async def test_what_was_moved_for_its_route_is_not_called_up(books: Books) -> None:
    """It waits for another reason."""
    fail_as_a_whole(books)
    elsewhere = claimed(books, 1)
    ended(books, elsewhere, Moved(Failure(ROUTE_CLOSED, "route x is closed"), SPENT, "1h", 3600.0))
    open_all(books)
    duty = Duty(books)

    await duty.look()

    assert elsewhere[0][0].task_id not in duty.called
    assert duty.called


async def test_a_late_move_is_called_up_too(books: Books) -> None:
    """An agent that had not heard of the opening may move a task for some seconds more."""
    fail_as_a_whole(books)
    late = claimed(books, 1)
    open_all(books)
    duty = Duty(books)
    await duty.look()

    ended(books, late, moved(Failure("GUARD", "why"), SPENT, LONGEST, 1))
    await duty.look()

    assert late[0][0].task_id in duty.called


async def test_guards_of_the_past_are_forgotten(books: Books) -> None:
    """Ten minutes after its last task was called up a guard decides nothing any more; a raised one stays."""
    fail_as_a_whole(books)
    ended(books, claimed(books, 1, into="healthy"), exhausted())
    assert books.count(tables.guard) == 2
    books.ago(tables.guard.c.called_at, 601)
    books.set(tables.guard, the(raised(books)).id, called_at=None)

    books.run(lambda c: probe.forget(c, GROUP))

    assert [one.batch for one in raised(books)] == [BATCH]
    assert books.count(tables.guard) == 1
