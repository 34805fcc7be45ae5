"""What a person is shown comes from the tally and is right after each move."""

from typing import Any

import pytest
from sqlalchemy import event

from agent.ledger import leases, queries, reaping
from agent.outcome import Outcome
from producer.ledger import cancel, outbox, status
from producer.ledger.status import BatchStatus, GroupStatus
from schemas.ledger import tables
from schemas.task.states import Status
from tests.contract.ledger_parts import (
    BATCH,
    DEAD,
    GROUP,
    RELEASED,
    RETRY,
    SNOOZE,
    SUCCEEDED,
    Books,
)


def shown(books: Books) -> GroupStatus:
    return books.run(lambda c: status.read(c, GROUP))


def batch(books: Books) -> BatchStatus:
    (one,) = shown(books).batches
    return one


def counts(books: Books) -> dict[str, int]:
    """Return the counts that are not 0."""
    return {name: count for name, count in batch(books).counts.items() if count}


def settled(books: Books, task_id: int, outcome: Outcome) -> None:
    owner = books.agent().next_owner()
    books.settle(books.claimed(task_id, owner), owner, outcome)


def test_loaded_tasks_are_pending(books: Books) -> None:
    """After a load the total and the pending count are the number of loaded tasks."""
    books.load("a", "b")
    books.accept([], books.batch())

    assert counts(books) == {"total": 2, "pending": 2}


def test_a_claimed_task_is_processing(books: Books) -> None:
    """A claim moves a task from pending to processing, a release moves it back."""
    one, _ = books.load("a", "b")
    owner = books.agent().next_owner()
    row = books.claimed(one, owner)
    assert counts(books) == {"total": 2, "pending": 1, "processing": 1}

    books.settle(row, owner, RELEASED)

    assert counts(books) == {"total": 2, "pending": 2}


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (SUCCEEDED, "succeeded"),
        (DEAD, "dead"),
        (RETRY, "retrying"),
        (SNOOZE, "pending"),
        (RELEASED, "pending"),
    ],
)
def test_a_settled_task_is_shown_where_it_went(books: Books, outcome: Outcome, name: str) -> None:
    """Each outcome shows its task once, in its state."""
    (one,) = books.load("a")

    settled(books, one, outcome)

    assert counts(books) == {"total": 1, name: 1}


def test_no_more_than_a_page_of_tasks_that_are_retried_is_counted(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage sends a million tasks to their tier.

    The tasks due first are shown as retrying, the others as pending.
    """
    monkeypatch.setattr(status, "COUNTED_MOST", 2)
    for one in books.load("a", "b", "c"):
        settled(books, one, RETRY)

    assert counts(books) == {"total": 3, "pending": 1, "retrying": 2}


def test_nothing_is_counted_for_a_group_of_which_nothing_waits(books: Books) -> None:
    """The tally shows that nothing waits, so no task is read, whatever other groups have."""
    (one,) = books.load("a")
    settled(books, one, SUCCEEDED)
    (theirs,) = books.load("a", into="theirs", group="other")
    owner = books.agent(group="other").next_owner()
    books.settle(books.claimed(theirs, owner), owner, RETRY)
    asked: list[str] = []

    def heard(*call: Any) -> None:
        asked.append(call[2])

    event.listen(books.database.engine, "before_cursor_execute", heard)
    try:
        assert counts(books) == {"total": 1, "succeeded": 1}
    finally:
        event.remove(books.database.engine, "before_cursor_execute", heard)

    assert asked
    assert not [statement for statement in asked if "FROM task" in statement]


def test_a_retried_task_that_succeeds_is_one_success(books: Books) -> None:
    """Failed attempts cost money and are shown as "tried again".

    But there is one task, and it succeeded.
    """
    (one,) = books.load("a")
    settled(books, one, SNOOZE)
    books.ago(tables.task.c.due_at, 1, one)
    settled(books, one, RETRY)
    books.ago(tables.task.c.due_at, 1, one)
    owner = books.agent().next_owner()
    books.settle(books.claimed(one, owner, fence=1), owner, SUCCEEDED)

    found = batch(books)

    assert counts(books) == {"total": 1, "succeeded": 1}
    assert found.failures == {"tried again SERVER": 2}
    assert (found.tokens_in, found.tokens_out) == (30, 15)
    assert found.cost == pytest.approx(0.0009)


def test_failures_are_told_by_class(books: Books) -> None:
    """Dead tasks are counted by the class of their error."""
    for one in books.load("a", "b"):
        settled(books, one, DEAD)

    assert batch(books).failures == {"dead BAD_REQUEST": 2}


def test_cancelled_tasks_are_counted(books: Books) -> None:
    """After a cancel the waiting tasks are cancelled, and the batch is shown as cancelled."""
    one, _, _ = books.load("a", "b", "c")
    settled(books, one, SUCCEEDED)
    batch_id = books.batch().id
    books.cancel()
    books.run(lambda c: cancel.cancel_page(c, batch_id, b""))

    assert counts(books) == {"total": 3, "succeeded": 1, "cancelled": 2}
    assert batch(books).cancelled


def test_reaped_tasks_are_pending_or_dead(books: Books) -> None:
    """A lost agent's tasks are shown as pending again, or as dead because of it."""
    one, two = books.load("a", "b")
    books.set(tables.task, two, lease_losses=2)
    for task_id in (one, two):
        lease = books.agent()
        books.claimed(task_id, lease.next_owner())
        assert books.run(lambda c, lost=lease: leases.declare_lost(c, lost.agent_id))
    books.run(lambda c: reaping.reset_orphans(c, GROUP, [one, two]))

    assert counts(books) == {"total": 2, "pending": 1, "dead": 1}
    assert batch(books).failures == {"dead WORKER_LOST": 1}


def test_a_rate_gives_an_end(books: Books) -> None:
    """The tasks that ended in the last minute give a rate, and the rate an estimate.

    Without a rate there is no estimate.
    """
    one, _ = books.load("a", "b")
    assert (batch(books).rate_per_s, batch(books).eta_s) == (0.0, None)
    settled(books, one, SUCCEEDED)
    books.ago(tables.tally.c.created_at, 10)

    found = batch(books)

    assert found.rate_per_s == pytest.approx(0.1, rel=0.5)
    assert found.eta_s == pytest.approx(1 / found.rate_per_s, rel=0.1)


def test_a_group_sees_its_own_batches(books: Books) -> None:
    """Another group's batches, agents and orders are not shown.

    One batch can be requested alone.
    """
    books.load("a", into="one")
    books.load("a", into="two")
    books.load("a", into="three", group="other")
    books.agent("theirs", group="other")
    books.run(lambda c: outbox.place(c, "other", "tasks", [(outbox.TASK, 1, 0)]))

    found = shown(books)

    assert [one.name for one in found.batches] == ["one", "two"]
    assert (found.agents, found.orders) == ((), 0)
    assert [one.name for one in books.run(lambda c: status.read(c, GROUP, "two")).batches] == [
        "two"
    ]


def test_it_says_why_nothing_runs(books: Books) -> None:
    """No agent, a lost agent, a silent agent, and what a living agent waits for.

    There are no reasons when all is done.
    """
    (one,) = books.load("a")
    assert any("no agent alive" in reason for reason in shown(books).reasons)
    alive, lost, silent, stopped = (
        books.agent(name) for name in ("alive", "lost", "silent", "stopped")
    )
    books.run(lambda c: leases.beat(c, alive.agent_id, "route waits 20 s: 429"))
    books.run(lambda c: leases.declare_lost(c, lost.agent_id))
    books.run(lambda c: leases.stop(c, stopped.agent_id))
    books.ago(tables.agent.c.seen_at, 9, silent.agent_id)

    found = shown(books)

    assert {agent.name: agent.state for agent in found.agents} == {
        "alive": "alive",
        "lost": "lost",
        "silent": "silent",
        "stopped": "stopped",
    }
    assert "route waits 20 s: 429" in found.reasons
    assert any(reason.startswith("agent silent silent, ") for reason in found.reasons)
    assert any(reason.startswith("agent lost lost") for reason in found.reasons)
    assert not any("no agent alive" in reason for reason in found.reasons)
    settled(books, one, SUCCEEDED)
    books.run(lambda c: leases.beat(c, alive.agent_id, ""))
    assert shown(books).reasons == ()


def test_a_lost_agent_is_told_of_until_its_tasks_are_recovered(books: Books) -> None:
    """A bug once named the agent among the reasons for ten minutes after its tasks ran again.

    Alerts continued for as long.
    """
    one, _ = books.load("a", "b")
    books.agent("alive")
    lost = books.agent("lost")
    books.claimed(one, lost.next_owner())
    books.run(lambda c: leases.declare_lost(c, lost.agent_id))
    books.ago(tables.agent.c.seen_at, status.LOST_SHOWN_S + 60, lost.agent_id)
    assert [reason.rpartition(",")[0] for reason in shown(books).reasons] == ["agent lost lost"]

    books.run(lambda c: reaping.reset_orphans(c, GROUP, [one]))
    assert shown(books).reasons == ()

    books.ago(tables.agent.c.seen_at, status.LOST_SHOWN_S - 30, lost.agent_id)
    assert [reason.rpartition(",")[0] for reason in shown(books).reasons] == ["agent lost lost"]
    assert any(found.state == "lost" for found in shown(books).agents)


def test_a_reaper_is_no_agent_that_takes_tasks(books: Books) -> None:
    """A reaper is listed among the agents as a reaper.

    The tasks wait all the same, and the reason is shown.
    """
    books.load("a")
    books.agent(f"host:7{status.REAPER}")

    found = shown(books)

    assert [(one.name, one.state) for one in found.agents] == [("host:7 (reaper)", "alive")]
    assert [reason for reason in found.reasons if "no agent alive" in reason]
    books.agent("host:8")
    assert shown(books).reasons == ()


def test_what_an_agent_does_not_read_is_told_without_an_open_batch(books: Books) -> None:
    """The lines of a paused inbox are in no batch.

    Nothing else would say why none of them becomes a task.
    """
    alive, notice = books.agent(), "topic docllm.inbox paused: it is missing or was made again"
    books.run(lambda c: leases.beat(c, alive.agent_id, notice))

    assert shown(books).reasons == (notice,)


def test_the_json_form_is_whole(books: Books) -> None:
    """Version, group, ledger, agents and batches, with plain numbers only."""
    (one,) = books.load("a")
    settled(books, one, SUCCEEDED)

    found = shown(books).as_json()

    assert (found["version"], found["group"], found["ledger"]) == (1, GROUP, books.ledger_id)
    (only,) = found["batches"]
    assert {
        "name",
        "counts",
        "rate_per_s",
        "eta_s",
        "tokens_in",
        "tokens_out",
        "cost",
    } <= only.keys()
    assert only["name"] == BATCH
    assert all(type(count) is int for count in only["counts"].values())
    assert type(only["cost"]) is float


def test_open_tasks_end_with_the_last_one(books: Books) -> None:
    """A group has open tasks while a task waits, runs or is to be retried.

    After its first batch a group has a batch forever.
    """
    assert not books.run(lambda c: queries.any_batch(c, GROUP))
    for outcome in (SUCCEEDED, DEAD):
        (one,) = books.load(type(outcome).__name__)
        assert books.run(lambda c: queries.open_tasks(c, GROUP))
        settled(books, one, outcome)
        assert not books.run(lambda c: queries.open_tasks(c, GROUP))
    books.load("theirs", into="elsewhere", group="other")

    assert not books.run(lambda c: queries.open_tasks(c, GROUP))
    assert books.run(lambda c: queries.any_batch(c, GROUP))


@pytest.mark.parametrize("state", [Status.PENDING, Status.PROCESSING, Status.RETRYING])
def test_every_state_that_is_not_final_is_open(books: Books, state: Status) -> None:
    """A task in this state keeps `--until-done` waiting."""
    (one,) = books.load("a")
    books.set(tables.task, one, status=int(state))

    assert books.run(lambda c: queries.open_tasks(c, GROUP))


def test_the_limit_of_a_reply_fits_the_server(books: Books) -> None:
    """The limit is a quarter of the largest packet, and 16 MiB at most."""
    assert books.run(queries.reply_limit_bytes) == 16 << 20
