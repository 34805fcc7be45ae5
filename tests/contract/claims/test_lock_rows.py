"""A lock has one holder at a time: a claim. It goes to those who wait in the order of asking."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import pairwise

import pytest
from sqlalchemy import Connection, update

from docllm.agent.ledger.leases import lock_rows
from docllm.agent.ledger.leases.leasing import declare_lost
from docllm.agent.ledger.recovery import reaping
from docllm.agent.ports.lock_table import NOBODY, Claimant, Held, LockChange
from docllm.agent.ports.outcome import Cancelled, Outcome
from docllm.producer.ledger import task_locks, task_story
from docllm.producer.screen.task_page import story_json, story_lines
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.sql import utc_after
from tests.support.ledger_database import (
    BATCH,
    DEAD,
    GROUP,
    RELEASED,
    RETRY,
    SNOOZE,
    SUCCEEDED,
    LedgerDatabase,
)

NAME = "account 7"


class Locks:
    """The lock of `NAME`, and attempts at tasks of one agent."""

    def __init__(self, ledger_db: LedgerDatabase) -> None:
        self.ledger_db = ledger_db
        self.lease = ledger_db.agent()

    def attempts(self, *keys: str) -> list[Claimant]:
        """Load tasks and claim each."""
        return [self.claim(task_id) for task_id in self.ledger_db.load(*keys)]

    def claim(self, task_id: int) -> Claimant:
        owner = self.lease.next_owner()
        self.ledger_db.claimed(task_id, owner, self.ledger_db.task(task_id).fence)
        return Claimant(task_id, owner)

    def end(self, attempt: Claimant, outcome: Outcome = SUCCEEDED) -> None:
        """Settle an attempt, and give nothing back."""
        ((_, row),) = self.ledger_db.answers(
            [self.ledger_db.record(attempt.task_id, 9)], attempt.owner
        ).values()
        assert row is not None
        self.ledger_db.settle(row, attempt.owner, outcome)

    def change(
        self, *, asking: list[Claimant] | None = None, leaving: list[Claimant] | None = None
    ) -> Held:
        changes = {NAME: LockChange(asking=asking or [], leaving=leaving or [])}
        (held,) = self.ledger_db.call(lock_rows.change, GROUP, changes)
        return held

    def ask(self, *attempts: Claimant) -> Held:
        return self.change(asking=list(attempts))

    def leave(self, *attempts: Claimant) -> Held:
        return self.change(leaving=list(attempts))

    def look(self) -> Held:
        (held,) = self.ledger_db.call(lock_rows.read_holders, GROUP, [NAME])
        return held


@pytest.fixture
def locks(ledger_db: LedgerDatabase) -> Locks:
    """An empty ledger with one agent."""
    return Locks(ledger_db)


def test_a_lock_goes_to_one_after_the_other(locks: Locks) -> None:
    """Who asks first holds it first, and each holder has a higher number."""
    a, b, c = locks.attempts("a", "b", "c")
    first = locks.ask(a)
    assert (first.holder, first.alive) == (a, True)
    assert locks.ask(b) == locks.ask(c) == locks.look() == first

    second = locks.leave(a)
    third = locks.leave(b)
    free = locks.leave(c)

    assert [second.holder, third.holder, free.holder] == [b, c, NOBODY]
    assert first.token < second.token < third.token == free.token
    assert (free.alive, locks.look().alive) == (False, False)
    assert not locks.ledger_db.rows(tables.lock_wait)


def test_asking_again_changes_nothing(locks: Locks) -> None:
    """A transaction whose answer was lost is run again, for the holder and for those who wait."""
    a, b, c = locks.attempts("a", "b", "c")
    first = locks.ask(a)

    assert locks.ask(a) == first
    assert locks.ask(b, c) == locks.ask(b) == locks.ask(c, b) == first
    assert locks.leave(a).holder == locks.leave(a).holder == b
    assert locks.leave(b).holder == c


def test_who_waits_no_longer_gets_no_lock(locks: Locks) -> None:
    """Leaving also ends a wait."""
    a, b, c = locks.attempts("a", "b", "c")
    locks.ask(a, b, c)

    assert locks.leave(b).holder == a
    assert locks.leave(a).holder == c
    assert locks.change(leaving=[c], asking=[c]).holder == c


def test_a_lock_that_is_left_and_taken_at_once_has_a_higher_number(locks: Locks) -> None:
    """The number is stored, also where it is ahead of the clock, so no later holder gets it too."""
    a, b = locks.attempts("a", "b")
    first = locks.ask(a)
    ahead = first.token + 1_000_000
    locks.ledger_db.run(lambda c: c.execute(update(tables.resource_lock).values(fence=ahead)))

    again = locks.change(leaving=[a], asking=[a])

    assert (again.holder, again.token) == (a, ahead + 1)
    assert locks.look() == again
    assert locks.change(leaving=[a], asking=[b]).token == ahead + 2


@pytest.mark.parametrize(
    "outcome",
    [SUCCEEDED, RETRY, SNOOZE, DEAD, RELEASED, Cancelled()],
    ids=lambda outcome: type(outcome).__name__,
)
def test_every_end_of_an_attempt_frees_its_lock(locks: Locks, outcome: Outcome) -> None:
    """The lock ends with the claim, although nobody gives it back."""
    a, b = locks.attempts("a", "b")
    first = locks.ask(a, b)
    if isinstance(outcome, Cancelled):
        locks.ledger_db.cancel()

    locks.end(a, outcome)

    assert locks.look() == Held(NAME, a, first.token, alive=False)
    passed_on = locks.change()
    assert (passed_on.holder, passed_on.alive) == (b, True)
    assert passed_on.token > first.token
    assert locks.leave(a) == passed_on


def test_a_lost_agent_holds_its_lock_until_its_tasks_are_reset(locks: Locks) -> None:
    """The next attempt of the same task is another holder, with a higher number."""
    lost = locks.ledger_db.agent()
    (task_id, waiting_id) = locks.ledger_db.load("a", "b")
    a = Claimant(task_id, lost.next_owner())
    locks.ledger_db.claimed(*a)
    b = locks.claim(waiting_id)
    first = locks.ask(a, b)
    assert locks.ledger_db.call(declare_lost, lost.agent_id)
    assert locks.change().holder == a

    locks.ledger_db.run(lambda c: reaping.reset_orphans(c, GROUP, reaping.orphans(c, GROUP)))

    assert locks.change().holder == b
    again = locks.claim(task_id)
    assert locks.ask(again).holder == b
    last = locks.leave(b)
    assert (last.holder, last.token > first.token + 1) == (again, True)


def test_a_task_keeps_its_place_for_its_next_attempt(locks: Locks) -> None:
    """An attempt that ended while it waited is passed over, and its task is not set back."""
    a, b, c, d = locks.attempts("a", "b", "c", "d")
    locks.ask(a, b, c, d)
    locks.end(b, RELEASED)
    locks.leave(c)
    assert locks.leave(a).holder == d

    b = locks.claim(b.task_id)
    assert locks.ask(c).holder == d
    assert locks.ask(b).holder == d

    assert locks.leave(d).holder == b
    assert locks.leave(b).holder == c


def test_the_number_rises_whatever_happened_to_the_row(locks: Locks) -> None:
    """The number is a time in milliseconds, or above the last number if the clock went back."""
    a, b, c = locks.attempts("a", "b", "c")
    first = locks.ask(a)
    assert abs(first.token / 1000 - datetime.now().timestamp()) < 600  # noqa: DTZ005
    locks.leave(a)
    ahead = update(tables.resource_lock).values(fence=first.token + 10**9)
    locks.ledger_db.run(lambda connection: connection.execute(ahead))
    assert locks.ask(b).token == first.token + 10**9 + 1
    locks.leave(b)

    locks.ledger_db.run(lambda c: c.execute(tables.resource_lock.delete()))

    assert locks.ask(c).token > first.token


def test_locks_of_other_names_and_groups_are_others(locks: Locks) -> None:
    """Nothing is shared but the table."""
    a, b, c = locks.attempts("a", "b", "c")
    changes = {"x": LockChange(asking=[a]), "y": LockChange(asking=[b])}
    held = locks.ledger_db.call(lock_rows.change, GROUP, changes)
    (other,) = locks.ledger_db.call(lock_rows.change, "other", {"x": LockChange(asking=[c])})

    assert [one.holder for one in held] == [a, b]
    assert other.holder == c


def test_what_nobody_used_for_a_day_is_forgotten(locks: Locks) -> None:
    """A lock that is held, and a wait that goes on, stay however old they are."""
    a, b, c = locks.attempts("a", "b", "c")
    locks.ask(a, b)
    old = [
        update(tables.resource_lock).values(changed_at=utc_after(-90_000)),
        update(tables.lock_wait).values(asked_at=utc_after(-90_000)),
    ]

    def forget() -> int:
        for statement in old:
            locks.ledger_db.call(Connection.execute, statement)
        return locks.ledger_db.run(lock_rows.forget)

    assert forget() == 0
    locks.end(b, RELEASED)
    assert (forget(), locks.look().holder) == (1, a)
    locks.leave(a)
    locks.ask(c)
    locks.end(c)
    assert forget() == 1
    assert not locks.ledger_db.rows(tables.resource_lock)


def test_a_lock_in_use_is_not_forgotten(locks: Locks) -> None:
    """Only a day without a use makes a row old."""
    (a,) = locks.attempts("a")
    locks.ask(a)
    locks.leave(a)

    assert locks.ledger_db.run(lock_rows.forget) == 0


def test_agents_that_ask_at_once_hold_it_one_after_the_other(locks: Locks) -> None:
    """Each of many attempts, asking through connections of their own, holds the lock once."""
    attempts = locks.attempts(*(f"task {number}" for number in range(12)))
    held: list[Held] = []

    def hold(attempt: Claimant) -> None:
        state = locks.ask(attempt)
        while state.holder != attempt:
            state = locks.look()
        held.append(state)
        assert locks.look() == state
        locks.leave(attempt)

    with ThreadPoolExecutor(len(attempts)) as pool:
        list(pool.map(hold, attempts))

    assert {state.holder for state in held} == set(attempts)
    assert all(before.token < after.token for before, after in pairwise(held))


def test_a_task_s_locks_are_shown_while_it_holds_them(locks: Locks) -> None:
    """A lock for which nobody waits is shown too; after the attempt's end there is none."""
    a, b = locks.attempts("a", "b")
    first = locks.ask(a)

    def shown() -> list[str]:
        story = locks.ledger_db.call(task_story.story, GROUP, BATCH, "a")
        assert story is not None
        story_json(story)
        return [line for line in story_lines(story) if "lock" in line]

    (line,) = shown()
    assert line.startswith(f"  holds the lock {NAME} since 20")
    assert "waiting" not in line
    locks.ask(b)
    assert shown()[0].endswith("; 1 task waiting for it")
    (held,) = locks.ledger_db.call(task_locks.of_claim, GROUP, *a)
    assert (held["name"], held["fence"], held["waiting"]) == (NAME, first.token, 1)
    locks.end(a)
    assert shown() == []
