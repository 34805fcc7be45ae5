"""A wait for a batch ends when the batch does: not before, and not for another batch's work."""

import asyncio
from collections.abc import Callable

import pytest

from docllm.producer.ledger import cancel, store
from docllm.producer.ledger.status.batch_wait import BatchProgress, read_progress, wait_for_batch
from docllm.schemas.errors import ConfigError
from tests.contract.support.ledger_dead import applied, dead, delivered, killed, request, stored
from tests.support.ledger_database import (
    BATCH,
    GROUP,
    RELEASED,
    SUCCEEDED,
    TOO_LONG,
    LedgerDatabase,
)


class StepClock:
    """A clock whose sleeps do what happens meanwhile, one step each, and end with the steps."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.steps = list(steps)

    def now_s(self) -> float:
        return 0.0

    def utc_s(self) -> float:
        return 0.0

    async def sleep(self, delay_s: float) -> None:
        assert delay_s > 0
        self.steps.pop(0)()


def progress(ledger_db: LedgerDatabase) -> BatchProgress:
    return ledger_db.call(read_progress, GROUP, BATCH)


def loaded(ledger_db: LedgerDatabase, *keys: str) -> list[int]:
    """Load a whole batch with these tasks."""
    ids = ledger_db.load(*keys)
    ledger_db.call(store.close_batch, ledger_db.batch())
    return ids


async def test_a_wait_ends_with_the_last_task(ledger_db: LedgerDatabase) -> None:
    """A released task is open; a success, a death and other batches' tasks do not hold the wait."""
    first, second = loaded(ledger_db, "a", "b")
    ledger_db.load("z", into="other")
    seen: list[BatchProgress] = []
    clock = StepClock(
        lambda: ledger_db.settled(first, RELEASED),
        lambda: ledger_db.settled(second, TOO_LONG),
        lambda: killed(ledger_db, first, SUCCEEDED),
    )

    end = await wait_for_batch(ledger_db.transactions, GROUP, BATCH, clock=clock, show=seen.append)

    assert end == BatchProgress(total=2, succeeded=1, dead=1, cancelled=0)
    assert [look.open for look in seen] == [2, 2, 1]
    assert not clock.steps


def test_a_batch_that_is_being_loaded_is_not_done(ledger_db: LedgerDatabase) -> None:
    """A load may add tasks after all that are there have ended, the first time and later.

    A batch without tasks is done once its load has ended.
    """
    ledger_db.batch()
    assert not progress(ledger_db).done

    ledger_db.call(store.close_batch, ledger_db.batch())
    assert progress(ledger_db) == BatchProgress(total=0, succeeded=0, dead=0, cancelled=0)

    ledger_db.call(store.begin_load, ledger_db.batch())
    assert progress(ledger_db).loading
    assert not progress(ledger_db).done


def test_a_batch_of_the_inbox_needs_no_end_of_a_load(ledger_db: LedgerDatabase) -> None:
    """Nobody closes a batch of the inbox: it is done while all its tasks are final."""
    ledger_db.batch(origin=store.Origin.INBOX)
    (task_id,) = ledger_db.load("a")
    assert not progress(ledger_db).done

    ledger_db.settled(task_id, SUCCEEDED)

    assert progress(ledger_db).done


def test_a_cancelled_batch_is_done_when_its_tasks_are(ledger_db: LedgerDatabase) -> None:
    """A cancelled load never ends, and is not waited for; its waiting tasks are."""
    ledger_db.load("a", "b")
    ledger_db.cancel()
    assert progress(ledger_db).open == 2

    ledger_db.call(cancel.cancel_page, ledger_db.batch().id)

    assert progress(ledger_db) == BatchProgress(total=2, succeeded=0, dead=0, cancelled=2)
    assert progress(ledger_db).done


@pytest.mark.parametrize("named", [BATCH, None])
def test_a_stored_replay_is_waited_for(ledger_db: LedgerDatabase, named: str | None) -> None:
    """A replay that is stored makes its tasks open later, whether it names the batch or not."""
    dead(ledger_db, "a", outcome=TOO_LONG)
    ledger_db.call(store.close_batch, ledger_db.batch())
    assert progress(ledger_db).done

    run = stored(ledger_db, request(batch=named))
    assert progress(ledger_db).replaying
    assert not progress(ledger_db).done

    applied(ledger_db, run)
    delivered(ledger_db)
    assert progress(ledger_db) == BatchProgress(total=1, succeeded=0, dead=0, cancelled=0)


def test_a_replay_of_another_batch_is_not_waited_for(ledger_db: LedgerDatabase) -> None:
    """A replay that names another batch never touches this one."""
    loaded(ledger_db)
    dead(ledger_db, "z", into="other", outcome=TOO_LONG)

    assert stored(ledger_db, request(batch="other")) is not None

    assert progress(ledger_db).done


async def test_a_wait_that_times_out_says_how_far_the_batch_is(ledger_db: LedgerDatabase) -> None:
    """A time-out is no error: the answer is the last look, and the batch is not done."""
    loaded(ledger_db, "a")

    class Stopped(StepClock):
        async def sleep(self, delay_s: float) -> None:
            await asyncio.Event().wait()

    end = await wait_for_batch(ledger_db.transactions, GROUP, BATCH, clock=Stopped(), timeout_s=0.0)

    assert (end.open, end.done) == (1, False)


@pytest.mark.parametrize(("group", "name"), [(GROUP, "none"), ("other", BATCH)])
async def test_an_unknown_batch_is_refused(
    ledger_db: LedgerDatabase, group: str, name: str
) -> None:
    """A wait for a mistyped name would end at once, or never."""
    loaded(ledger_db, "a")

    with pytest.raises(ConfigError, match=f"group {group} has no batch '{name}'"):
        await wait_for_batch(ledger_db.transactions, group, name, clock=StepClock())


def test_a_look_costs_the_same_for_each_size(ledger_db: LedgerDatabase) -> None:
    """The counts come from sums: no statement reads the tasks or their results."""
    loaded(ledger_db, *map(str, range(30)))

    with ledger_db.statements() as statements:
        progress(ledger_db)

    assert not [text for text in statements if "FROM task" in text or "JOIN task" in text]
