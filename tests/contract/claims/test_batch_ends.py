"""The end of a batch is found once for each round, and its hook is ordered with it."""

from typing import Any

import pytest

from docllm.agent.ledger import batch_ends, hook_runs
from docllm.agent.ledger.hook_runs import HookEnd, HookReturn, HookRun
from docllm.agent.ports.outcome import Outcome
from docllm.producer.ledger import cancel, hook_orders, store
from docllm.producer.ledger.status import group_status
from docllm.schemas.ledger import tables
from docllm.schemas.task.hooks import OF_BATCHES, HookState
from tests.contract.support.ledger_dead import delivered, killed, replayed, request, stored
from tests.support.ledger_database import (
    BATCH,
    DEAD,
    GROUP,
    RETRY,
    SUCCEEDED,
    LedgerDatabase,
)


@pytest.fixture
def hooked(ledger_db: LedgerDatabase) -> LedgerDatabase:
    """A ledger whose group has an agent with the hook of batches."""
    ledger_db.call(hook_orders.store_names, GROUP, [OF_BATCHES])
    return ledger_db


def loaded(ledger_db: LedgerDatabase, *keys: str, into: str = BATCH) -> list[int]:
    """Load tasks, to the end of the load."""
    ids = ledger_db.load(*keys, into=into) if keys else []
    ledger_db.call(store.close_batch, ledger_db.batch(into))
    return ids


def found(ledger_db: LedgerDatabase) -> list[tuple[str, int]]:
    """Find the ends of batches; return the batch and the round of each."""
    rows = ledger_db.call(batch_ends.done, GROUP)
    assert ledger_db.call(batch_ends.write, GROUP, [row.id for row in rows]) == len(rows)
    return [(row.name, row.round) for row in rows]


def told(ledger_db: LedgerDatabase) -> list[dict[str, Any]]:
    """Lease the hooks that are due to an agent; return what they are told."""
    runs = leased(ledger_db)
    ends = [ledger_db.call(batch_ends.read, run.batch_id, run.attempts) for run in runs]
    return [end for end in ends if end is not None]


def leased(ledger_db: LedgerDatabase) -> list[HookRun]:
    ids = ledger_db.call(hook_runs.due_ids, GROUP, [OF_BATCHES], 10)
    return ledger_db.call(hook_runs.lease_due, ids, 1, 600.0)


def settled(ledger_db: LedgerDatabase, ids: list[int], *outcomes: Outcome) -> None:
    """Let free tasks end so; their dead letters are delivered."""
    for task_id, outcome in zip(ids, outcomes, strict=True):
        killed(ledger_db, task_id, outcome)
    delivered(ledger_db)


def test_a_batch_is_done_when_its_last_task_is_final(hooked: LedgerDatabase) -> None:
    """One task that waits for its next attempt keeps it open; then its end is found, once."""
    ids = loaded(hooked, "a", "b", "c")
    settled(hooked, ids[:2], SUCCEEDED, DEAD)
    assert found(hooked) == []
    settled(hooked, ids[2:], RETRY)
    assert found(hooked) == []
    hooked.ago(tables.task.c.due_at, 1, ids[2])
    settled(hooked, ids[2:], SUCCEEDED)

    assert (found(hooked), found(hooked)) == ([(BATCH, 1)], [])

    (end,) = told(hooked)
    assert end.pop("ended_at").endswith("Z")
    assert end == {
        "group": GROUP,
        "batch": BATCH,
        "round": 1,
        "counts": {"total": 3, "succeeded": 2, "dead": 1, "cancelled": 0},
        "cost": 0.0012,
    }


def test_a_half_loaded_batch_is_not_done(hooked: LedgerDatabase) -> None:
    """More tasks may come, though all that have come are final; loading on ends it later."""
    settled(hooked, hooked.load("a"), SUCCEEDED)
    assert found(hooked) == []

    loaded(hooked, "a")

    assert found(hooked) == [(BATCH, 1)]


def test_an_empty_batch_is_done_when_its_load_has_ended(hooked: LedgerDatabase) -> None:
    """Whoever waits for the batch of each night is told of an empty one too."""
    loaded(hooked)

    assert found(hooked) == [(BATCH, 1)]
    assert [end["counts"]["total"] for end in told(hooked)] == [0]


def test_a_batch_of_the_inbox_never_ends(hooked: LedgerDatabase) -> None:
    """Other programs add tasks whenever they like, even if it was cancelled."""
    hooked.batch("stream", origin=store.Origin.INBOX)
    settled(hooked, hooked.load("a", into="stream"), SUCCEEDED)
    hooked.cancel("stream")

    assert found(hooked) == []


def test_a_cancelled_batch_is_done_when_all_its_tasks_are_final(hooked: LedgerDatabase) -> None:
    """No task comes any more, even if its load was interrupted."""
    hooked.load("a", "b")
    hooked.cancel()
    assert found(hooked) == []
    hooked.call(cancel.cancel_page, hooked.batch().id)

    assert found(hooked) == [(BATCH, 1)]
    assert [end["counts"]["cancelled"] for end in told(hooked)] == [2]


def test_a_replay_lets_the_batch_end_again(hooked: LedgerDatabase) -> None:
    """Each end of the batch is a round of its own, with the counts of then."""
    ids = loaded(hooked, "a")
    settled(hooked, ids, DEAD)
    assert found(hooked) == [(BATCH, 1)]
    replayed(hooked)
    assert found(hooked) == []
    settled(hooked, ids, SUCCEEDED)

    assert found(hooked) == [(BATCH, 2)]
    assert [(end["round"], end["counts"]["dead"]) for end in told(hooked)] == [(1, 1), (2, 0)]


def test_a_replay_that_goes_on_keeps_its_batch_open(hooked: LedgerDatabase) -> None:
    """Its next tasks become pending later, as its rate lets them; another batch may end."""
    settled(hooked, loaded(hooked, "a"), DEAD)
    settled(hooked, loaded(hooked, "x", into="other"), SUCCEEDED)
    stored(hooked, request(batch=BATCH))

    assert found(hooked) == [("other", 1)]


def test_a_load_of_what_is_there_already_is_no_new_end(hooked: LedgerDatabase) -> None:
    """A cron job may start the same load again; tasks that it adds make a new round."""
    settled(hooked, loaded(hooked, "a"), SUCCEEDED)
    assert found(hooked) == [(BATCH, 1)]
    hooked.call(store.begin_load, hooked.batch())
    loaded(hooked, "a")
    assert found(hooked) == []

    settled(hooked, loaded(hooked, "b"), SUCCEEDED)

    assert found(hooked) == [(BATCH, 2)]


def test_batches_that_were_done_before_the_hook_are_not_told(ledger_db: LedgerDatabase) -> None:
    """The hook counts from when the first agent has it, though others say it again later."""
    settled(ledger_db, loaded(ledger_db, "a"), SUCCEEDED)
    for column in (tables.tally.c.created_at, tables.batch.c.closed_at):
        ledger_db.ago(column, 60)
    ledger_db.call(hook_orders.store_names, GROUP, [OF_BATCHES])
    settled(ledger_db, loaded(ledger_db, "b", into="new"), SUCCEEDED)
    ledger_db.call(hook_orders.store_names, GROUP, [OF_BATCHES])

    assert found(ledger_db) == [("new", 1)]


def test_without_the_hook_no_batch_ends(ledger_db: LedgerDatabase) -> None:
    """No agent has named it, or only one of another group."""
    ledger_db.call(hook_orders.store_names, "other", [OF_BATCHES])
    settled(ledger_db, loaded(ledger_db, "a"), SUCCEEDED)

    assert found(ledger_db) == []


def test_a_batch_that_is_archived_at_once_is_told(hooked: LedgerDatabase) -> None:
    """Its archive may be written while no agent with the hook runs."""
    settled(hooked, loaded(hooked, "a"), SUCCEEDED)
    hooked.ago(tables.batch.c.archived_at, 0)

    assert (found(hooked), found(hooked)) == ([(BATCH, 1)], [])


def test_a_batch_whose_end_was_seen_may_be_open_again(hooked: LedgerDatabase) -> None:
    """Between the look and the write a load adds a task: nothing is written."""
    settled(hooked, loaded(hooked, "a"), SUCCEEDED)
    (row,) = hooked.call(batch_ends.done, GROUP)
    hooked.load("b")

    assert hooked.call(batch_ends.write, GROUP, [row.id]) == 0
    assert (hooked.count(tables.batch_end), hooked.count(tables.hook)) == (0, 0)


def test_an_end_that_cannot_be_told_is_given_up_and_shown(hooked: LedgerDatabase) -> None:
    """As every hook: five tries, then a sentence in `status` with the command for more."""
    settled(hooked, loaded(hooked, "a"), SUCCEEDED)
    found(hooked)
    for _ in range(hook_runs.MAX_TRIES):
        hooked.ago(tables.hook.c.due_at, 1)
        (run,) = leased(hooked)
        assert (run.batch, run.title) == (BATCH, f"on_batch_done of {BATCH}")
        hooked.call(hook_runs.finish, 1, [HookEnd(run, HookReturn(failure="answered 500"))])

    assert [row.state for row in hooked.rows(tables.hook)] == [HookState.GAVE_UP]
    (wait,) = hooked.call(group_status.read_group, GROUP).waits
    assert wait.text == (
        "1 hook on_batch_done given up: answered 500; "
        f"to run them again: docllm dead hooks --retry --group {GROUP}"
    )
