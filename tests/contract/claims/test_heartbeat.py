"""The heartbeat keeps leases, and replaces an incarnation that is no longer good.

Its clock is a fake.
"""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from docllm.agent.lease import CLAIMS_PER_INCARNATION, HEARTBEAT_MAX_AGE_S
from docllm.agent.ledger.leases import leasing
from docllm.agent.membership.heartbeat import DEADLOCK_TRIES, RETRY_BEAT_S, Heartbeat
from docllm.agent.membership.life_locks import LifeLocks
from docllm.schemas.agent_report import AgentReport, to_json
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.database import Connection, Database
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.executors import InlineExecutor
from tests.support.ledger_database import GROUP, LedgerDatabase, only_sqlite

pytestmark = only_sqlite
REPORT = to_json(AgentReport(slots=4))


class FakeClock:
    """Time that only the test moves.

    A sleep takes as long as requested, and the last one ends the loop.
    """

    def __init__(self, sleeps: int = 0) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self._sleeps = sleeps

    def now_s(self) -> float:
        return self.now

    def utc_s(self) -> float:
        return self.now

    async def sleep(self, delay_s: float) -> None:
        self.slept.append(delay_s)
        self.now += delay_s
        if len(self.slept) == self._sleeps:
            raise EnoughError


class EnoughError(Exception):
    pass


def heartbeat(
    ledger_db: LedgerDatabase,
    clock: FakeClock,
    *,
    locks: LifeLocks | None = None,
    database: Database | None = None,
) -> Heartbeat:
    return Heartbeat(
        transactions=Transactions(
            database=database or ledger_db.database, executor=InlineExecutor()
        ),
        clock=clock,
        name="agent",
        group=GROUP,
        version="1",
        locks=locks,
        revision="0001",
        report=lambda: REPORT,
    )


def agents(ledger_db: LedgerDatabase) -> dict[int, Any]:
    return {row.id: row for row in ledger_db.rows(tables.agent)}


async def test_a_registered_agent_has_a_fresh_lease(ledger_db: LedgerDatabase) -> None:
    """The lease counts from before the registration.

    So it never seems younger than the ledger knows.
    """
    clock = FakeClock()
    beating = heartbeat(ledger_db, clock)

    lease = await beating.register()

    assert beating.current is lease
    assert lease.beaten_at_s == 1000.0
    assert lease.may_claim(1000.0 + HEARTBEAT_MAX_AGE_S)
    assert not lease.may_claim(1000.1 + HEARTBEAT_MAX_AGE_S)
    assert list(agents(ledger_db)) == [lease.agent_id]


async def test_a_beat_renews_the_lease(ledger_db: LedgerDatabase) -> None:
    """After a beat in time the same incarnation goes on, and its report is stored."""
    clock = FakeClock()
    beating = heartbeat(ledger_db, clock)
    lease = await beating.register()
    clock.now += 3

    assert await beating.beat_once()

    assert (beating.current, lease.beaten_at_s) == (lease, 1003.0)
    row = agents(ledger_db)[lease.agent_id]
    assert (row.report, row.revision) == (REPORT, "0001")


async def test_a_report_that_cannot_be_made_costs_no_heartbeat(
    ledger_db: LedgerDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """The lease is renewed without a report, and the log says once why."""
    clock = FakeClock()
    beating = heartbeat(ledger_db, clock)
    lease = await beating.register()
    beating.report = lambda: str(1 / 0)

    for _ in range(3):
        clock.now += 3
        assert await beating.beat_once()

    assert lease.beaten_at_s == clock.now
    assert agents(ledger_db)[lease.agent_id].report is None
    assert [message for message in caplog.messages if "division by zero" in message] == [
        caplog.messages[0]
    ]


async def test_a_late_agent_takes_a_new_incarnation(ledger_db: LedgerDatabase) -> None:
    """After a gap of more than 9 s the old lease is no longer trusted.

    This holds although nobody declared it lost.
    """
    clock = FakeClock()
    beating = heartbeat(ledger_db, clock)
    old = await beating.register()
    clock.now += HEARTBEAT_MAX_AGE_S + 0.1

    await beating.beat_once()

    assert beating.current.agent_id != old.agent_id
    assert beating.current.may_claim(clock.now)


async def test_nothing_starts_under_an_incarnation_that_was_late(ledger_db: LedgerDatabase) -> None:
    """The incarnation sends heartbeats for its running calls, but is never fresh again.

    So nothing claimed under it is started.
    """
    clock = FakeClock()
    beating = heartbeat(ledger_db, clock)
    old = await beating.register()
    old.running = 1
    clock.now += HEARTBEAT_MAX_AGE_S + 0.1

    await beating.beat_once()
    await beating.beat_once()

    reports = {agent_id: row.report for agent_id, row in agents(ledger_db).items()}
    assert reports == {old.agent_id: None, beating.current.agent_id: REPORT}
    assert old.beaten_at_s == clock.now
    assert not old.may_claim(clock.now)


async def test_a_lease_is_late_whose_turn_came_late(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger kept the former lease's row for longer than a lease lasts."""
    clock = FakeClock()
    beating = heartbeat(ledger_db, clock)
    former = await beating.register()
    clock.now += HEARTBEAT_MAX_AGE_S + 0.1
    await beating.beat_once()
    current = beating.current
    clock.now += 3
    stop = leasing.stop

    def slowly(connection: Connection, agent_id: int) -> None:
        stop(connection, agent_id)
        clock.now += HEARTBEAT_MAX_AGE_S

    monkeypatch.setattr(leasing, "stop", slowly)
    await beating.beat_once()

    assert former.agent_id != current.agent_id
    assert beating.current.agent_id != current.agent_id


async def test_a_lost_agent_takes_a_new_incarnation(ledger_db: LedgerDatabase) -> None:
    """A lost lease is never revived: claims go on under a new one, the old row stays lost."""
    clock = FakeClock()
    beating = heartbeat(ledger_db, clock)
    old = await beating.register()
    ledger_db.call(leasing.declare_lost, old.agent_id)
    clock.now += 3

    await beating.beat_once()
    await beating.beat_once()

    assert old.is_lost
    assert not old.may_claim(old.beaten_at_s)
    assert beating.current.agent_id != old.agent_id
    assert agents(ledger_db)[old.agent_id].lost_at is not None
    assert agents(ledger_db)[beating.current.agent_id].lost_at is None


async def test_an_old_incarnation_beats_while_its_calls_run_and_is_stopped_then(
    ledger_db: LedgerDatabase,
) -> None:
    """Running calls keep their lease alive; after the last of them it is stopped.

    So its agent is not taken for dead.
    """
    clock = FakeClock()
    beating = heartbeat(ledger_db, clock)
    old = await beating.register()
    old.running = 2
    clock.now += HEARTBEAT_MAX_AGE_S + 1
    await beating.beat_once()

    for running in (2, 1):
        old.running = running
        clock.now += 3
        ledger_db.ago(tables.agent.c.seen_at, 5, old.agent_id)
        await beating.beat_once()
        assert old.beaten_at_s == clock.now
        assert agents(ledger_db)[old.agent_id].stopped_at is None
    old.running = 0
    clock.now += 3
    await beating.beat_once()

    assert agents(ledger_db)[old.agent_id].stopped_at is not None
    assert agents(ledger_db)[beating.current.agent_id].stopped_at is None


async def test_an_incarnation_whose_numbers_are_used_up_is_replaced(
    ledger_db: LedgerDatabase,
) -> None:
    """Owner numbers are never reused: when they run out, a new incarnation begins."""
    beating = heartbeat(ledger_db, FakeClock())
    old = await beating.register()
    old.claims = CLAIMS_PER_INCARNATION

    await beating.beat_once()

    assert beating.current.agent_id != old.agent_id


async def test_a_beat_that_fails_is_tried_again_soon(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the ledger does not answer, the lease ages, and a beat is tried each second."""
    clock = FakeClock(sleeps=5)
    beating = heartbeat(ledger_db, clock)
    lease = await beating.register()
    answers = iter([True, False, False])

    async def beat_once(_self: Heartbeat) -> bool:
        return next(answers, True)

    monkeypatch.setattr(Heartbeat, "beat_once", beat_once)

    with pytest.raises(EnoughError):
        await beating.run()

    assert clock.slept == [
        leasing.HEARTBEAT_S,
        RETRY_BEAT_S,
        RETRY_BEAT_S,
        leasing.HEARTBEAT_S,
        leasing.HEARTBEAT_S,
    ]
    assert lease.beaten_at_s == 1000.0


async def test_a_deadlock_is_tried_again_at_once(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server undid a heartbeat in favour of another transaction.

    It is written again without a log line.
    """
    clock = FakeClock()
    beating = heartbeat(ledger_db, clock)
    lease = await beating.register()
    clock.now += 3
    real, left = leasing.beat, [1213] * (DEADLOCK_TRIES - 1)

    def beat(*args: Any) -> bool:
        if left:
            raise OperationalError("UPDATE agent", {}, Exception(left.pop(), "Deadlock found"))
        return real(*args)

    monkeypatch.setattr(leasing, "beat", beat)

    assert await beating.beat_once()
    assert (lease.beaten_at_s, left, caplog.messages) == (clock.now, [], [])

    left[:] = [1213] * DEADLOCK_TRIES
    assert not await beating.beat_once(), "a server that has nothing but deadlocks is told of"


async def test_an_outage_is_an_answer_and_no_end(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A beat without a ledger returns False.

    When the ledger is back after 9 s, a new incarnation begins.
    """
    clock = FakeClock()
    beating = heartbeat(ledger_db, clock)
    old = await beating.register()
    with monkeypatch.context() as patch:
        patch.setattr(
            leasing,
            "beat",
            lambda *_: ledger_db.database.engine.connect().exec_driver_sql("no SQL"),
        )
        clock.now += 3
        assert not await beating.beat_once()
    assert (beating.current, old.beaten_at_s) == (old, 1000.0)
    clock.now += HEARTBEAT_MAX_AGE_S

    assert await beating.beat_once()

    assert beating.current is not old


async def test_an_agent_that_leaves_stops_all_its_incarnations(
    ledger_db: LedgerDatabase, tmp_path: Path
) -> None:
    """Old and current rows are stopped and the locks freed, so nobody waits for a verdict."""
    clock = FakeClock()
    locks = LifeLocks(tmp_path)
    beating = heartbeat(ledger_db, clock, locks=locks)
    old = await beating.register()
    old.running = 1
    clock.now += HEARTBEAT_MAX_AGE_S + 1
    await beating.beat_once()
    assert not LifeLocks(tmp_path).has_process_ended(beating.current.agent_id)

    await beating.stop()

    assert all(row.stopped_at is not None for row in agents(ledger_db).values())
    assert len(agents(ledger_db)) == 2
    assert all(LifeLocks(tmp_path).has_process_ended(agent_id) for agent_id in agents(ledger_db))


async def test_the_lease_is_dated_before_its_beat(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow beat counts from when it was sent: the ledger may have seen it then."""
    clock = FakeClock()
    beating = heartbeat(ledger_db, clock)
    lease = await beating.register()
    real = leasing.beat

    def slow(*args: Any) -> bool:
        clock.now += 5
        return real(*args)

    monkeypatch.setattr(leasing, "beat", slow)
    clock.now += 3
    await beating.beat_once()

    assert lease.beaten_at_s == 1003.0
