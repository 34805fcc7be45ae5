"""The real ledger makes no mistake on the shortest schedules that could show one.

Each planted mistake is caught. The names A9 to B17 are those of the model's runs.
"""

import logging
from collections.abc import Callable, Sequence

import pytest

from tests.contract import ledger_bugs as bugs
from tests.contract import ledger_schedules as ways
from tests.contract.ledger_bus import BrokenError
from tests.contract.ledger_parts import LedgerDatabase
from tests.contract.ledger_walk import Promises, end
from tests.contract.ledger_world import World


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Lost reports are normal in these worlds, so they are not logged."""
    caplog.set_level(logging.ERROR, "producer.relay.relay")


Schedule = Callable[[World], None]


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
    "A10 no sweep": (ways.lost_by_kafka, ["no sweep"], "P1 stuck"),
    "A12 fenced lets the offset pass": (ways.fenced_with_its_partition, ["fenced passes"], "P3"),
    "A14 no hard deadline": (ways.leaked, ["no hard deadline"], "P1 stuck"),
    "B4 held is skipped": (ways.held_and_given_back, ["held is skipped"], "P3"),
    "B5 held is skipped, only loss counts": (
        ways.held_and_given_back,
        ["held is skipped", "only loss counts"],
        "S1",
    ),
    "B8 publish before settle": (ways.retried_in_vain, ["publish first"], "I2"),
    "B9 publish a letter before settle": (ways.dead, ["publish first"], "P8"),
    "B14 release commits": (ways.released, ["release commits"], "P3"),
    "B15 release commits, only loss counts": (
        ways.released,
        ["release commits", "only loss counts"],
        "S1",
    ),
}


@pytest.mark.parametrize(("schedule", "quirks", "promise"), QUIRKS.values(), ids=QUIRKS)
def test_an_agent_that_does_it_wrong_is_caught(
    ledger_db: LedgerDatabase, schedule: Schedule, quirks: Sequence[str], promise: str
) -> None:
    """Each mistake of an agent breaks the promise that the model names."""
    assert played(ledger_db, schedule, *quirks).startswith(promise)


BUGS = {
    "A9 a letter is dropped": (bugs.dead_letters_are_dropped, ways.dead, "P8"),
    "B1 settle without owner": (bugs.settle_without_owner, ways.superseded, "P2"),
    "B2 late settle by anyone": (bugs.late_settle_by_anyone, ways.superseded_and_released, "P2"),
    "B3 reaper without re-check": (
        bugs.reap_without_recheck,
        ways.settled_between_finding_and_reset,
        "P2",
    ),
    "B6 commit the highest finished": (bugs.commit_the_highest, ways.the_second_first, "P3"),
    "B7 order deleted before its report": (bugs.delete_before_report, ways.retried_in_vain, "S1"),
    "B10 no outbox": (bugs.no_outbox, ways.retried_in_vain, "S1"),
    "B11 reap raises the fence only": (bugs.reap_raises_the_fence_only, ways.reaped, "S1"),
    "B13 claim without fence": (bugs.claim_without_fence, ways.an_old_record_comes_again, "I3"),
    "B16 relay without re-check": (
        bugs.relay_without_recheck,
        ways.settled_late_before_its_order_is_sent,
        "W1",
    ),
    "B17 retry keeps the fence": (bugs.retry_keeps_the_fence, ways.retried_in_vain, "P3"),
}


@pytest.mark.parametrize(("bug", "schedule", "promise"), BUGS.values(), ids=BUGS)
def test_a_ledger_that_does_it_wrong_is_caught(
    ledger_db: LedgerDatabase,
    monkeypatch: pytest.MonkeyPatch,
    bug: Callable[[pytest.MonkeyPatch], None],
    schedule: Schedule,
    promise: str,
) -> None:
    """Each bug that is planted into the real functions breaks the promise the model names."""
    bug(monkeypatch)

    assert played(ledger_db, schedule).startswith(promise)
