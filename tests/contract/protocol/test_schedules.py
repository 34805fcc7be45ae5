"""The real ledger makes no mistake on the shortest schedules that could show one.

Each planted mistake is caught: one of the agents (`QUIRKS`), or one in the ledger's own functions
(`BUGS`, from `bugs.py`). An error begins with the promise that was broken,
P1 to P9, or says what must never happen.
"""

import logging
from collections.abc import Callable, Sequence

import pytest

from tests.contract.protocol import bugs
from tests.contract.protocol import schedules as ways
from tests.contract.protocol.topics import BrokenError
from tests.contract.protocol.walk import Promises, end
from tests.contract.protocol.world import World
from tests.support.ledger_database import LedgerDatabase


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Lost reports are normal in these worlds, so they are not logged."""
    caplog.set_level(logging.ERROR, "docllm.producer.publishing.relay")


Schedule = Callable[[World], None]

NO_RECORD = "a waiting task has no record"
AHEAD = "a record has a fence that its row has not reached"
OLD_CLAIMS = "a record with an old fence claims its task"
IN_VAIN = "the relay publishes a record that can do nothing"


def played(ledger_db: LedgerDatabase, schedule: Schedule, *quirks: str) -> str:
    """Play a schedule to its end; return the broken promise, or an empty text."""
    world = World(ledger_db, 0, tasks=2, quirks=quirks)
    promises = Promises(world)
    try:
        promises.check()
        schedule(world)
        promises.check()
        end(world, promises)
    except (BrokenError, AssertionError) as broken:
        return str(broken)
    return ""


@pytest.mark.parametrize("schedule", ways.SCHEDULES)
def test_the_ledger_keeps_its_promises_on_every_schedule(
    ledger_db: LedgerDatabase, schedule: Schedule
) -> None:
    """The real ledger makes no mistake on any schedule that would show one."""
    assert played(ledger_db, schedule) == ""


QUIRKS = {
    "no sweep": (ways.lost_by_kafka, ["no sweep"], "P1 stuck"),
    "superseded lets the offset pass": (
        ways.superseded_with_its_partition,
        ["superseded passes"],
        "P3",
    ),
    "no end of claims": (ways.leaked, ["no end of claims"], "P1 stuck"),
    "held is skipped": (ways.held_and_given_back, ["held is skipped"], "P3"),
    "held is skipped, only loss counts": (
        ways.held_and_given_back,
        ["held is skipped", "only loss counts"],
        NO_RECORD,
    ),
    "publish before settle": (ways.retried_in_vain, ["publish first"], AHEAD),
    "publish a letter before settle": (ways.dead, ["publish first"], "P8"),
    "release commits": (ways.released, ["release commits"], "P3"),
    "release commits, only loss counts": (
        ways.released,
        ["release commits", "only loss counts"],
        NO_RECORD,
    ),
}


@pytest.mark.parametrize(("schedule", "quirks", "promise"), QUIRKS.values(), ids=QUIRKS)
def test_an_agent_that_does_it_wrong_is_caught(
    ledger_db: LedgerDatabase, schedule: Schedule, quirks: Sequence[str], promise: str
) -> None:
    """Each mistake of an agent breaks the promise that it endangers."""
    assert played(ledger_db, schedule, *quirks).startswith(promise)


BUGS = {
    "a letter is dropped": (bugs.dead_letters_are_dropped, ways.dead, "P8"),
    "settle without owner": (bugs.settle_without_owner, ways.superseded, "P2"),
    "late settle by anyone": (bugs.late_settle_by_anyone, ways.superseded_and_released, "P2"),
    "reaper without re-check": (
        bugs.reap_without_recheck,
        ways.settled_between_finding_and_reset,
        "P2",
    ),
    "commit the highest finished": (bugs.commit_the_highest, ways.the_second_first, "P3"),
    "order deleted before its report": (bugs.delete_before_report, ways.retried_in_vain, NO_RECORD),
    "no outbox": (bugs.no_outbox, ways.retried_in_vain, NO_RECORD),
    "reap raises the fence only": (bugs.reap_raises_the_fence_only, ways.reaped, NO_RECORD),
    "claim without fence": (bugs.claim_without_fence, ways.an_old_record_comes_again, OLD_CLAIMS),
    "relay without re-check": (
        bugs.relay_without_recheck,
        ways.settled_late_before_its_order_is_sent,
        IN_VAIN,
    ),
    "retry keeps the fence": (bugs.retry_keeps_the_fence, ways.retried_in_vain, "P3"),
}


@pytest.mark.parametrize(("bug", "schedule", "promise"), BUGS.values(), ids=BUGS)
def test_a_ledger_that_does_it_wrong_is_caught(
    ledger_db: LedgerDatabase,
    monkeypatch: pytest.MonkeyPatch,
    bug: Callable[[pytest.MonkeyPatch], None],
    schedule: Schedule,
    promise: str,
) -> None:
    """Each bug that is planted into the real functions breaks the promise that it endangers."""
    bug(monkeypatch)

    assert played(ledger_db, schedule).startswith(promise)
