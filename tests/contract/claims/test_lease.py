"""Leases in the database: beats, how agents are declared lost, and the amnesty.

A lost lease is never revived.
"""

import itertools
import secrets
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import insert

from docllm.agent.lease import Lease
from docllm.agent.ledger.leases import leasing
from docllm.schemas.agent_report import AgentReport, RouteFacts, to_json
from docllm.schemas.ledger import tables
from docllm.schemas.task.owner import agent_of
from tests.support.ledger_database import GROUP, RELEASED, LedgerDatabase


def row(ledger_db: LedgerDatabase, lease: Lease) -> Any:
    return next(agent for agent in ledger_db.rows(tables.agent) if agent.id == lease.agent_id)


def beat(ledger_db: LedgerDatabase, lease: Lease, report: str = "") -> bool:
    return ledger_db.call(leasing.beat, lease.agent_id, report)


def declare_lost(ledger_db: LedgerDatabase, lease: Lease) -> int:
    return ledger_db.call(leasing.declare_silent_agents, lease.agent_id)


def test_an_incarnation_is_a_row_of_its_own(ledger_db: LedgerDatabase) -> None:
    """Each registration has an id of its own, and begins without a steady time.

    Its owner numbers fit a signed BIGINT.
    """
    first, second = ledger_db.agent("one"), ledger_db.agent("one")

    assert first.agent_id != second.agent_id
    assert 0 < leasing.owner_range(first.agent_id)[1] < 1 << 63
    agent = row(ledger_db, first)
    assert (agent.name, agent.group_name, agent.stopped_at, agent.lost_at) == (
        "one",
        GROUP,
        None,
        None,
    )
    assert abs((agent.steady_since - agent.seen_at).total_seconds()) < 1


def test_an_id_that_is_taken_is_drawn_again(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same random number twice gives two incarnations with different ids."""
    drawn = itertools.chain([4, 4, 4], itertools.repeat(9))
    monkeypatch.setattr(secrets, "randbits", lambda _bits: next(drawn))

    assert {ledger_db.agent().agent_id, ledger_db.agent().agent_id} == {5, 10}


def test_owner_numbers_of_a_lease_lie_in_its_range(ledger_db: LedgerDatabase) -> None:
    """Every owner of a lease names its incarnation, and none comes twice."""
    lease = ledger_db.agent()
    owners = [lease.next_owner() for _ in range(100)]

    first, last = leasing.owner_range(lease.agent_id)
    assert len(set(owners)) == 100
    assert all(first <= owner <= last and agent_of(owner) == lease.agent_id for owner in owners)


def test_a_beat_renews_the_lease(ledger_db: LedgerDatabase) -> None:
    """A beat in time changes `seen_at` and nothing else of the lease, and stores the report.

    A beat without a report removes the last one. The end of the agent does not: a load goes by
    the types that it knew.
    """
    longest = to_json(AgentReport(routes=(RouteFacts("ä" * 64, "open"),) * 20))
    lease = ledger_db.agent()
    ledger_db.ago(tables.agent.c.seen_at, 3, lease.agent_id)
    ledger_db.ago(tables.agent.c.steady_since, 60, lease.agent_id)
    before = row(ledger_db, lease)

    assert beat(ledger_db, lease, longest)

    after = row(ledger_db, lease)
    assert after.seen_at > before.seen_at
    assert (after.steady_since, after.report) == (before.steady_since, longest)
    assert beat(ledger_db, lease)
    assert row(ledger_db, lease).report is None
    assert beat(ledger_db, lease, longest)
    ledger_db.call(leasing.stop, lease.agent_id)
    assert row(ledger_db, lease).report == longest


def test_a_late_beat_begins_a_new_steady_time(ledger_db: LedgerDatabase) -> None:
    """The server sets `steady_since` from the old `seen_at`, on every kind of server.

    This works although both columns change in one statement.
    """
    lease = ledger_db.agent()
    ledger_db.ago(tables.agent.c.steady_since, 60, lease.agent_id)
    ledger_db.ago(tables.agent.c.seen_at, 7, lease.agent_id)
    before = row(ledger_db, lease)

    assert beat(ledger_db, lease)

    after = row(ledger_db, lease)
    assert (after.steady_since - before.steady_since).total_seconds() == pytest.approx(60, abs=10)
    assert abs((after.steady_since - after.seen_at).total_seconds()) < 0.01


def test_a_steady_agent_declares_a_silent_one_lost(ledger_db: LedgerDatabase) -> None:
    """After 12 s without a beat an agent is lost, once; an agent that is only late is not."""
    me, silent, late = ledger_db.steady_agent(), ledger_db.agent(), ledger_db.agent()
    ledger_db.ago(tables.agent.c.seen_at, 13, silent.agent_id)
    ledger_db.ago(tables.agent.c.seen_at, 9, late.agent_id)

    assert declare_lost(ledger_db, me) == 1
    assert declare_lost(ledger_db, me) == 0
    assert row(ledger_db, silent).lost_at is not None
    assert row(ledger_db, late).lost_at is None


def test_a_new_agent_declares_no_agent_lost(ledger_db: LedgerDatabase) -> None:
    """Without 15 s of steady beats an agent may declare no agent lost."""
    me, silent = ledger_db.agent(), ledger_db.agent()
    ledger_db.ago(tables.agent.c.steady_since, 14, me.agent_id)
    ledger_db.ago(tables.agent.c.seen_at, 100, silent.agent_id)

    assert declare_lost(ledger_db, me) == 0


def test_after_a_stall_the_first_beat_gives_amnesty(ledger_db: LedgerDatabase) -> None:
    """When server and agents stood still together, the first to beat declares no agent lost.

    This lasts for 15 s.
    """
    agents = [ledger_db.steady_agent() for _ in range(3)]
    ledger_db.ago(tables.agent.c.seen_at, 40)

    assert beat(ledger_db, agents[0])

    assert declare_lost(ledger_db, agents[0]) == 0
    ledger_db.ago(tables.agent.c.steady_since, 16, agents[0].agent_id)
    assert declare_lost(ledger_db, agents[0]) == 2


def test_an_agent_whose_own_beat_is_late_declares_no_agent_lost(ledger_db: LedgerDatabase) -> None:
    """The statement, run by the server after a stall and before any beat, changes no row.

    It finds that the agent which sent it is silent.
    """
    me, other = ledger_db.steady_agent(), ledger_db.steady_agent()
    ledger_db.ago(tables.agent.c.seen_at, 20)

    assert declare_lost(ledger_db, me) == 0
    assert row(ledger_db, other).lost_at is None
    assert row(ledger_db, me).lost_at is None


def test_a_lost_agent_declares_no_agent_lost(ledger_db: LedgerDatabase) -> None:
    """An agent that was itself declared lost may not judge."""
    me, silent = ledger_db.steady_agent(), ledger_db.agent()
    ledger_db.call(leasing.declare_lost, me.agent_id)
    ledger_db.ago(tables.agent.c.seen_at, 100, silent.agent_id)

    assert declare_lost(ledger_db, me) == 0


def test_stopped_agents_and_other_groups_are_not_judged(ledger_db: LedgerDatabase) -> None:
    """An agent that stopped, or belongs to another group, is not declared lost."""
    me, stopped, elsewhere = (
        ledger_db.steady_agent(),
        ledger_db.agent(),
        ledger_db.agent(group="other"),
    )
    ledger_db.call(leasing.stop, stopped.agent_id)
    ledger_db.ago(tables.agent.c.seen_at, 100, stopped.agent_id, elsewhere.agent_id)

    assert declare_lost(ledger_db, me) == 0


def test_a_lost_lease_is_not_revived(ledger_db: LedgerDatabase) -> None:
    """A beat after the verdict is refused and changes nothing."""
    lease = ledger_db.lost_agent()
    ledger_db.ago(tables.agent.c.seen_at, 100, lease.agent_id)
    before = row(ledger_db, lease)

    assert not beat(ledger_db, lease)
    assert row(ledger_db, lease) == before


@pytest.mark.parametrize("ending", [leasing.declare_lost, leasing.stop])
def test_an_agent_that_is_gone_is_remembered_for_a_day(
    ledger_db: LedgerDatabase, ending: Callable[..., object]
) -> None:
    """All agents of the group see lost and stopped agents for a day, and not as alive."""
    lease, living, other = (
        ledger_db.agent(),
        ledger_db.agent("living"),
        ledger_db.agent(group="other"),
    )
    for member in (lease, other):
        ledger_db.call(ending, member.agent_id)

    assert ledger_db.call(leasing.gone, GROUP) == {lease.agent_id}
    assert ledger_db.call(leasing.alive, GROUP) == [(living.agent_id, "living")]
    ledger_db.ago(
        tables.agent.c.lost_at if ending is leasing.declare_lost else tables.agent.c.stopped_at,
        86_401,
        lease.agent_id,
    )
    assert ledger_db.call(leasing.gone, GROUP) == frozenset()


@pytest.mark.parametrize("ending", [leasing.declare_lost, leasing.stop])
def test_an_agent_that_left_long_ago_is_forgotten(
    ledger_db: LedgerDatabase, ending: Callable[..., object]
) -> None:
    """Every agent reads these rows each second, so old ones are deleted.

    A silent agent stays for the verdict, and so does one that left today.
    """
    old, recent, silent = ledger_db.agent(), ledger_db.agent(), ledger_db.agent()
    for member in (old, recent):
        ledger_db.call(ending, member.agent_id)
    ledger_db.ago(tables.agent.c.seen_at, leasing.FORGET_S + 60)
    left_at = (
        tables.agent.c.lost_at if ending is leasing.declare_lost else tables.agent.c.stopped_at
    )
    ledger_db.ago(left_at, leasing.FORGET_S + 60, old.agent_id)
    ledger_db.ago(left_at, leasing.FORGET_S - 60, recent.agent_id)

    assert ledger_db.run(leasing.forget) == 1

    assert {agent.id for agent in ledger_db.rows(tables.agent)} == {
        recent.agent_id,
        silent.agent_id,
    }
    assert not beat(ledger_db, old)
    assert ledger_db.run(leasing.forget) == 0


def test_an_agent_with_a_task_in_hand_is_not_forgotten(ledger_db: LedgerDatabase) -> None:
    """The reaper must know the owner of a task that is processing."""
    first, other = ledger_db.lost_agent(), ledger_db.lost_agent()
    (task_id,) = ledger_db.load("a")
    row_in_hand = ledger_db.claimed(task_id, first.next_owner())
    ledger_db.ago(tables.agent.c.lost_at, leasing.FORGET_S + 60, first.agent_id, other.agent_id)

    assert ledger_db.run(leasing.forget) == 1
    assert [agent.id for agent in ledger_db.rows(tables.agent)] == [first.agent_id]

    ledger_db.settle(row_in_hand, row_in_hand.owner, RELEASED)
    assert ledger_db.run(leasing.forget) == 1


def test_agents_are_forgotten_a_page_at_a_time(ledger_db: LedgerDatabase) -> None:
    """A ledger that has run for long is cleaned up in steps."""
    rows = [
        {"id": number, "name": "pod", "group_name": GROUP}
        for number in range(1, leasing.MAX_FORGET + 11)
    ]
    ledger_db.run(lambda c: c.execute(insert(tables.agent), rows))
    ledger_db.ago(tables.agent.c.stopped_at, leasing.FORGET_S + 60)

    assert [ledger_db.run(leasing.forget) for _ in range(3)] == [leasing.MAX_FORGET, 10, 0]


def test_an_agent_is_declared_lost_once(ledger_db: LedgerDatabase) -> None:
    """Proof of death counts once, and not for an agent that has stopped."""
    lease, stopped = ledger_db.agent(), ledger_db.agent()
    ledger_db.call(leasing.stop, stopped.agent_id)

    assert ledger_db.call(leasing.declare_lost, lease.agent_id)
    assert not ledger_db.call(leasing.declare_lost, lease.agent_id)
    assert not ledger_db.call(leasing.declare_lost, stopped.agent_id)


def test_agents_learn_which_batches_are_cancelled(ledger_db: LedgerDatabase) -> None:
    """A group learns its own cancelled batches with their times, except archived ones."""
    ledger_db.load("a", into="one")
    ledger_db.load("a", into="two")
    ledger_db.load("a", into="three", group="other")
    ledger_db.cancel("one")
    first_batch = ledger_db.batch("one").id

    first = ledger_db.call(leasing.cancelled, GROUP)
    assert [(batch_id, name) for batch_id, name, _ in first] == [(first_batch, "one")]
    ledger_db.ago(tables.batch.c.cancelled_at, 1, first_batch)
    assert first.isdisjoint(ledger_db.call(leasing.cancelled, GROUP))
    ledger_db.ago(tables.batch.c.archived_at, 1, first_batch)
    assert ledger_db.call(leasing.cancelled, GROUP) == frozenset()
