"""The calls of a day are counted for accounts with a limit of requests a day."""

from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import insert

from docllm.agent.ledger.counts.calls_of_day import calls_since
from docllm.agent.maintenance.waits.day_counter import count_day
from docllm.agent.ports.outcome import Cancelled, Outcome
from docllm.agent.quota.grants import DayCount
from docllm.schemas.ledger import tables
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.states import Status
from tests.support.ledger_database import GROUP, RETRY, SPENT, SUCCEEDED, LedgerDatabase

DAY = 20_000
MIDNIGHT = datetime(1970, 1, 1) + timedelta(days=DAY)  # noqa: DTZ001 - as the ledger has it


class MorningClock(SystemClock):
    def utc_s(self) -> float:
        return DAY * 86_400 + 7200.0


def add(ledger_db: LedgerDatabase, entered: int, **values: object) -> None:
    row = {
        "group_name": GROUP,
        "width_s": 3600,
        "starts_at": MIDNIGHT,
        "route": "a",
        "state": int(Status.SUCCEEDED),
        "outcome": "succeeded",
        "entered": entered,
    }
    ledger_db.run(lambda c: c.execute(insert(tables.tally_series), [row | values]))


def add_recent(ledger_db: LedgerDatabase, delta: int, at: datetime, **values: object) -> None:
    row = {
        "batch_id": ledger_db.batch().id,
        "type": "document",
        "created_at": at,
        "route": "a",
        "state": int(Status.SUCCEEDED),
        "outcome": "succeeded",
        "fingerprint": bytes(16),
        "delta": delta,
    }
    ledger_db.run(lambda c: c.execute(insert(tables.tally), [row | values]))


def test_calls_that_are_not_summed_up_yet_count(ledger_db: LedgerDatabase) -> None:
    other = ledger_db.batch("theirs", "other").id
    add(ledger_db, 1)
    add_recent(ledger_db, 2, MIDNIGHT)
    add_recent(ledger_db, 4, MIDNIGHT + timedelta(hours=2), outcome="SERVER")
    add_recent(ledger_db, 8, MIDNIGHT - timedelta(seconds=1))
    add_recent(ledger_db, 16, MIDNIGHT, outcome="loaded")
    add_recent(ledger_db, 32, MIDNIGHT, route="c")
    add_recent(ledger_db, 64, MIDNIGHT, batch_id=other)
    add_recent(ledger_db, -128, MIDNIGHT)

    assert ledger_db.call(calls_since, GROUP, ["a", "b"], MIDNIGHT) == 7


def test_each_call_of_an_attempt_counts_on_its_route(ledger_db: LedgerDatabase) -> None:
    """The end of an attempt is counted as one call; a cancelled attempt counts as none."""
    owner = ledger_db.agent().next_owner()
    on_other = replace(SPENT, calls=3).leaving_route("other", ErrorClass.SERVER)
    outcomes: dict[str, Outcome] = {
        "five": replace(SUCCEEDED, spent=replace(SPENT, calls=5)),
        "four": replace(RETRY, spent=replace(SPENT, calls=1).plus(on_other)),
        "cancelled": Cancelled(replace(SPENT, calls=2)),
    }
    for task_id, outcome in zip(ledger_db.load(*outcomes), outcomes.values(), strict=True):
        ledger_db.settle(ledger_db.claimed(task_id, owner), owner, outcome)
    long_ago = datetime(2000, 1, 1)  # noqa: DTZ001 - as the ledger has it

    assert ledger_db.call(calls_since, GROUP, ["route"], long_ago) == 5 + 1 + 2
    assert ledger_db.call(calls_since, GROUP, ["other"], long_ago) == 3


async def test_the_calls_of_today_are_counted_for_each_account(ledger_db: LedgerDatabase) -> None:
    """Failed calls count. Other days, groups and routes do not, nor changes without a call."""
    add(ledger_db, 1)
    add(ledger_db, 2, starts_at=MIDNIGHT + timedelta(hours=1), route="b")
    add(ledger_db, 4, state=int(Status.PENDING), outcome="SERVER")
    add(ledger_db, 64, state=int(Status.PROCESSING), outcome="call")
    add(ledger_db, 8, starts_at=MIDNIGHT - timedelta(hours=1))
    add(ledger_db, 16, group_name="other")
    add(ledger_db, 32, route="c")
    add(ledger_db, 64, width_s=60)
    add(ledger_db, 128, state=int(Status.PENDING), outcome="loaded")
    add(ledger_db, 256, state=int(Status.PENDING), outcome="GUARD")
    add(ledger_db, 512, state=int(Status.PENDING), outcome="DOCUMENT_UNREADABLE")
    add(ledger_db, 1024, state=int(Status.DEAD), outcome="DOCUMENT_CHANGED")
    add(ledger_db, 2048, state=int(Status.DEAD), outcome="DOCUMENT_REFUSED")
    add(ledger_db, 4096, state=int(Status.DEAD), outcome="UNDECODABLE")
    add(ledger_db, 8192, state=int(Status.PENDING), outcome="NETWORK")
    noted: dict[str, DayCount] = {}

    await count_day(
        ledger_db.transactions,
        MorningClock(),
        GROUP,
        lambda: {"a": ("a", "b"), "free": ("free",)},
        noted.__setitem__,
    )

    assert noted == {"a": DayCount(day=DAY, calls=71), "free": DayCount(day=DAY, calls=0)}
