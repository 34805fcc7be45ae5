"""An agent has one entry for each task, and none of them vanishes."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agent.entries import PAID_KEPT, Entries
from agent.entry import Entry, State
from agent.lease import OWNER_BITS
from agent.outcome import COMPLETION, Spent, Succeeded
from agent.ports import Partition, Row
from schemas.envelope import Publication

PARTITION = Partition("group.tasks", "id", 0, 1)


def entry(task_id: int, offset: int = 0, value: bytes | None = b"body", fence: int = 0, digest: bytes = b"d" * 16) -> Entry:
    return Entry(PARTITION, offset, 0, Publication("ledger", "group", "batch", task_id, fence), value, digest, "route")


def room(_route: str) -> int:
    """A route that takes any number of calls."""
    return 1000


def owned_by(task_id: int, agent_id: int) -> Row:
    return Row(task_id, 1, 1, agent_id << OWNER_BITS | 1, 0, 0, 5, 0, 0, 0.0, False, "document", b"key", "batch")  # noqa: FBT003 - a row as it is read


def test_a_new_record_is_claimed_and_a_redelivered_one_asked_about() -> None:
    """Only what may have been settled before costs a question."""
    entries = Entries()
    fresh, again = entry(1), entry(2)
    entries.arrive(fresh, redelivered=False)
    entries.arrive(again, redelivered=True)

    assert entries.waiting == 2
    assert entries.take_ready(10, room) == [fresh]
    assert entries.take_to_ask(0.0, 10) == [again]
    assert (fresh.state, entries.waiting) == (State.CLAIMING, 0)


def test_what_has_waited_is_claimed_before_what_came_later() -> None:
    """A task that a dead agent left behind does not queue up behind a thousand others."""
    entries = Entries()
    later, waited = entry(1), entry(2)
    entries.arrive(later, redelivered=False)
    entries.arrive(waited, redelivered=True)
    (asked,) = entries.take_to_ask(0.0, 10)

    entries.ready(asked, back=True)

    assert entries.take_ready(10, room) == [waited, later]


def test_two_records_of_one_task_are_never_in_one_claim() -> None:
    """The second waits behind the first, whatever the first is doing, and is asked about when the first has ended."""
    entries = Entries()
    first, second, third = entry(1, 0), entry(1, 1), entry(1, 2)
    for one in (first, second, third):
        entries.arrive(one, redelivered=False)

    assert entries.take_ready(10, room) == [first]
    assert entries.take_ready(10, room) == entries.take_to_ask(0.0, 10) == []
    entries.end(first)
    assert entries.take_to_ask(0.0, 10) == [second]
    entries.end(second)
    assert entries.take_to_ask(0.0, 10) == [third]
    entries.end(third)
    assert entries._by_task == {}


@pytest.mark.parametrize("other", [entry(1, 4, fence=4), entry(1, 4, fence=3, digest=b"f" * 16)])
def test_copies_are_taken_from_behind_an_entry_up_to_the_first_other_record(other: Entry) -> None:
    """Another fence, or other bytes under the same task, is no copy; what is behind those keeps its place."""
    entries = Entries()
    first, copy, gone, older = (entry(1, offset, fence=fence) for offset, fence in enumerate((3, 3, 3, 2)))
    last = entry(1, 5, fence=3)
    for one in (first, copy, gone, older, other, last):
        entries.arrive(one, redelivered=True)
    entries.take_to_ask(0.0, 10)
    entries.end(gone)

    assert entries.take_copies(first, 3) == [copy, older]
    assert entries.take_copies(copy, 3) == []
    entries.end(first)
    assert entries.take_to_ask(0.0, 10) == [other]
    entries.end(other)
    assert entries.take_to_ask(0.0, 10) == [last]


def test_an_entry_without_its_body_has_no_copies_that_are_known() -> None:
    """Its digest went with the body: the records behind it are asked about."""
    entries = Entries()
    first, second = entry(1, 0), entry(1, 1)
    for one in (first, second):
        entries.arrive(one, redelivered=False)
    entries.hold(first, 1.0)

    assert entries.take_copies(first, 1000) == []
    entries.end(first)
    assert entries.take_to_ask(0.0, 10) == [second]


def test_a_follower_that_is_gone_is_passed_over() -> None:
    """When its partition went before its turn came, the next one follows."""
    entries = Entries()
    first, second, third = entry(1, 0), entry(1, 1), entry(1, 2)
    for one in (first, second, third):
        entries.arrive(one, redelivered=False)

    entries.end(second)
    entries.end(first)

    assert entries.take_to_ask(0.0, 10) == [third]


def test_what_is_gone_is_neither_asked_about_nor_claimed() -> None:
    """An entry whose partition went stays in no queue."""
    entries = Entries()
    asking, ready, held = entry(1), entry(2), entry(3)
    entries.arrive(asking, redelivered=True)
    entries.arrive(ready, redelivered=False)
    entries.arrive(held, redelivered=False)
    entries.hold(held, 5.0)
    for one in (asking, ready, held):
        entries.end(one)

    assert entries.take_ready(10, room) == entries.take_to_ask(10.0, 10) == []


def test_held_entries_that_are_due_are_asked_about_first() -> None:
    """They share each question with new ones, so that neither kind starves."""
    entries = Entries()
    held, new = [entry(number) for number in range(4)], [entry(number) for number in range(10, 14)]
    for one in held:
        entries.arrive(one, redelivered=True)
    for one in entries.take_to_ask(0.0, 10):
        entries.hold(one, 1.0)
    for one in new:
        entries.arrive(one, redelivered=True)

    assert entries.next_due_s() == 1.0
    assert entries.take_to_ask(1.0, 4) == held[:2] + new[:2]
    assert entries.take_to_ask(1.0, 4) == held[2:] + new[2:]


def test_bodies_are_counted_until_they_are_dropped() -> None:
    """What waits long keeps no body; what is gone keeps none either."""
    entries = Entries()
    first, second, follower = entry(1, 0, b"x" * 10), entry(2, 1, b"x" * 5), entry(1, 2, b"x" * 3)
    for one in (first, second, follower):
        entries.arrive(one, redelivered=False)
    assert entries.bodies_bytes == 18

    entries.hold(first, 5.0)
    assert (entries.bodies_bytes, first.value, first.digest) == (8, None, None)
    entries.end(second)
    entries.end(follower)

    assert entries.bodies_bytes == 0


def test_entries_of_an_agent_that_is_gone_are_asked_about() -> None:
    """Before their own time comes."""
    entries = Entries()
    one = entry(1)
    entries.arrive(one, redelivered=False)
    entries.take_ready(1, room)
    one.row = owned_by(1, 7)
    entries.hold_for(one, 7, 0.0)
    assert entries.held == 1
    assert entries.take_to_ask(0.5, 10) == []

    assert entries.wake([7], 0.5) == 1
    assert entries.take_to_ask(0.5, 10) == [one]


def test_answers_that_were_paid_and_fenced_are_bounded() -> None:
    """The oldest are let go when there are more than a thousand."""
    entries = Entries()
    kept = [entry(number) for number in range(PAID_KEPT + 2)]
    for one in kept:
        one.paid = Succeeded(b"answer", COMPLETION, Spent())
        entries.keep_paid(one)

    assert [one.paid is None for one in kept] == [True, True, *[False] * PAID_KEPT]


class Agent(RuleBasedStateMachine):
    """A loop that does anything the real one may, beside a list of all records that are not finished with."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = Entries()
        self.now_s = 0.0
        self.offset = 0
        self.live: list[Entry] = []
        self.asking: list[Entry] = []
        self.claiming: list[Entry] = []
        self.running: list[Entry] = []

    @rule(task_id=st.integers(1, 4), redelivered=st.booleans())
    def arrive(self, task_id: int, redelivered: bool) -> None:  # noqa: FBT001 - hypothesis draws it by name
        self.offset += 1
        one = entry(task_id, self.offset)
        self.live.append(one)
        self.entries.arrive(one, redelivered=redelivered)

    @rule(limit=st.integers(2, 6))
    def ask(self, limit: int) -> None:
        self.asking += self.entries.take_to_ask(self.now_s, limit)

    @precondition(lambda self: self.asking)
    @rule(answer=st.sampled_from(["ready", "held", "early", "done"]), agent_id=st.integers(7, 9))
    def answered(self, answer: str, agent_id: int) -> None:
        one = self.asking.pop()
        if one.state is State.ASKING:
            self.act(one, answer, agent_id)

    @rule(limit=st.integers(1, 4))
    def claim(self, limit: int) -> None:
        taken = self.entries.take_ready(limit, room)
        assert len({one.task_id for one in taken}) == len(taken)
        self.claiming += taken

    @precondition(lambda self: self.claiming)
    @rule(answer=st.sampled_from(["claimed", "ready", "held", "early", "done"]), agent_id=st.integers(7, 9))
    def claim_answered(self, answer: str, agent_id: int) -> None:
        one = self.claiming.pop()
        if answer == "claimed":
            one.state = State.RUNNING
            self.running.append(one)
        else:
            self.act(one, answer, agent_id)

    @precondition(lambda self: self.running)
    @rule(fenced=st.booleans())
    def settled(self, fenced: bool) -> None:  # noqa: FBT001 - hypothesis draws it by name
        one = self.running.pop()
        if fenced:
            self.entries.ask(one)
        else:
            for copy in self.entries.take_copies(one, 0):
                self.finish(copy)
            self.finish(one)

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 3.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(agent_id=st.integers(7, 9))
    def agent_gone(self, agent_id: int) -> None:
        self.entries.wake([agent_id], self.now_s)

    @rule(data=st.data())
    def partition_goes(self, data: st.DataObject) -> None:
        """Of what waits some entries go, as the loop drops them."""
        waiting = [one for one in self.live if one.state not in {State.CLAIMING, State.RUNNING}]
        for one in data.draw(st.lists(st.sampled_from(waiting), unique_by=id)) if waiting else ():
            self.finish(one)

    def act(self, one: Entry, answer: str, agent_id: int) -> None:
        if answer == "ready":
            self.entries.ready(one)
        elif answer == "held":
            one.row = owned_by(one.task_id, agent_id)
            self.entries.hold_for(one, agent_id, self.now_s)
        elif answer == "early":
            one.row = owned_by(one.task_id, 0)
            self.entries.hold(one, self.now_s + 2.0)
        else:
            self.finish(one)

    def finish(self, one: Entry) -> None:
        self.entries.end(one)
        self.live.remove(one)

    @invariant()
    def one_entry_of_each_task_is_at_work(self) -> None:
        busy = [one.task_id for one in self.claiming + self.running]
        assert len(set(busy)) == len(busy)
        assert set(self.entries._by_task) == {one.task_id for one in self.live}

    @invariant()
    def bodies_are_counted(self) -> None:
        assert self.entries.bodies_bytes == sum(len(one.value or b"") for one in self.live)

    def teardown(self) -> None:
        """Whatever has happened, every record that is not finished with comes to be asked about or claimed."""
        while self.asking:
            self.answered("held", 7)
        while self.claiming:
            self.claim_answered("ready", 7)
        while self.running:
            self.settled(fenced=True)
        for _ in range(len(self.live) + 1):
            self.now_s += 100.0
            for one in self.entries.take_to_ask(self.now_s, 1000) + self.entries.take_ready(1000, room):
                self.finish(one)
        assert self.live == []
        assert self.entries._by_task == {}


TestAgent = Agent.TestCase
TestAgent.settings = settings(max_examples=150, stateful_step_count=40)
TestAgent.__doc__ = "Whatever is answered, revoked or settled: one entry of each task is at work, and none vanishes."
