"""A person's word that a route may take calls again: written once, audited, heard by all.

Every running agent learns it.
"""

from types import SimpleNamespace

from docllm.agent.inflight.delay_queue import DelayQueue
from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.ledger.route_resumes import resumed, routes_in_use
from docllm.agent.maintenance.waits.resume_listener import ResumeListener
from docllm.agent.ports import Clock
from docllm.agent.routes import Router
from docllm.producer.ledger.long_waits import resume
from docllm.schemas.ledger import tables
from docllm.schemas.runtime.clock import SystemClock
from tests.support.doubles import double_of, stand_in
from tests.support.ledger_database import DEAD, GROUP, RETRY, SNOOZE, LedgerDatabase
from tests.unit.agent.inflight.test_delay_queue import new_delivery


def say(ledger_db: LedgerDatabase, route: str, group: str = GROUP) -> None:
    ledger_db.run(lambda c: resume(c, group, route, "somebody@host"))


class Agent:
    """The duty of one agent, and the routes that it learned of."""

    def __init__(self, ledger_db: LedgerDatabase) -> None:
        self.told: list[str] = []
        self.waiting: list[Delivery] = []
        self.woken: list[Delivery] = []
        clock: Clock = SystemClock()
        self._duty = ResumeListener(
            transactions=ledger_db.transactions,
            clock=clock,
            group=GROUP,
            routes=double_of(Router, resume=self._resume),
            table=stand_in(
                InFlightTable,
                SimpleNamespace(
                    delayed=double_of(
                        DelayQueue, snoozed_on=lambda route: self.waiting if route == "a" else []
                    ),
                    delay=lambda delivery, _at_s: self.woken.append(delivery),
                ),
            ),
        )

    def _resume(self, route: str, _now_s: float) -> bool:
        self.told.append(route)
        return True

    async def hears(self) -> list[str]:
        """Look once; return the new routes."""
        self.told.clear()
        await self._duty.check()
        return sorted(self.told)


async def test_every_agent_hears_it_once(ledger_db: LedgerDatabase) -> None:
    """Each time a person says it, each running agent learns it once."""
    first, second = Agent(ledger_db), Agent(ledger_db)
    assert (await first.hears(), await second.hears()) == ([], [])

    say(ledger_db, "a")
    say(ledger_db, "b")
    assert (await first.hears(), await second.hears()) == (["a", "b"], ["a", "b"])
    assert await first.hears() == []
    say(ledger_db, "a")

    assert (await first.hears(), await second.hears()) == (["a"], ["a"])


async def test_a_resume_ends_the_waits_of_snoozed_tasks(ledger_db: LedgerDatabase) -> None:
    """A task that a refusal would hold for long is due at once; a tier's time is left alone."""
    snoozed, retrying = ledger_db.load("snoozed", "retrying")
    owner = ledger_db.agent().next_owner()
    ledger_db.settle(ledger_db.claimed(snoozed, owner), owner, SNOOZE)
    ledger_db.settle(ledger_db.claimed(retrying, owner), owner, RETRY)
    before = {row.id: row.due_at for row in ledger_db.rows(tables.task)}
    agent = Agent(ledger_db)
    await agent.hears()
    agent.waiting = [new_delivery(snoozed), new_delivery(retrying)]
    for delivery in agent.waiting:
        delivery.state = DeliveryState.DELAYED
    agent.waiting[1].state = DeliveryState.ASKING

    say(ledger_db, "b")
    await agent.hears()
    assert agent.woken == []
    say(ledger_db, "a")
    await agent.hears()

    after = {row.id: row.due_at for row in ledger_db.rows(tables.task)}
    assert after[snoozed] < before[snoozed]
    assert after[retrying] == before[retrying]
    assert agent.woken == agent.waiting[:1]


async def test_a_resume_from_before_the_start_is_ignored(ledger_db: LedgerDatabase) -> None:
    """An agent that starts takes calls on every route anyway.

    What a person says about another group does not concern it.
    """
    say(ledger_db, "a")
    agent = Agent(ledger_db)
    assert await agent.hears() == []

    say(ledger_db, "a", group="other")

    assert await agent.hears() == []


def test_a_resume_is_written_once_and_audited_each_time(ledger_db: LedgerDatabase) -> None:
    """Each group and route has one row, with the database's time.

    The audit says who did it, each time.
    """
    for group in (GROUP, GROUP, "other"):
        say(ledger_db, "ü" * 64, group)

    assert [(row.group_name, row.route) for row in ledger_db.rows(tables.route_resume)] == [
        (GROUP, "ü" * 64),
        ("other", "ü" * 64),
    ]
    assert [(row.actor, row.action) for row in ledger_db.rows(tables.audit)] == [
        ("somebody@host", "resume")
    ] * 3
    assert "of group other" in ledger_db.rows(tables.audit)[-1].detail
    assert set(ledger_db.run(lambda c: resumed(c, GROUP))) == {"ü" * 64}


def test_routes_in_use_are_those_of_the_last_day(ledger_db: LedgerDatabase) -> None:
    """A route is in use if an attempt of the group ended on it, whatever its outcome.

    A task that was only loaded has no route.
    """
    tried, _, old = ledger_db.load("tried", "loaded", "old")
    (others,) = ledger_db.load("others", into="others", group="other")
    owner = ledger_db.agent().next_owner()
    ledger_db.settle(ledger_db.claimed(tried, owner), owner, SNOOZE)
    assert ledger_db.run(lambda c: routes_in_use(c, GROUP)) == {"route"}

    ledger_db.ago(tables.tally.c.created_at, 90_000)
    assert ledger_db.run(lambda c: routes_in_use(c, GROUP)) == set()
    ledger_db.settle(ledger_db.claimed(others, owner), owner, DEAD)
    assert (ledger_db.run(lambda c: routes_in_use(c, GROUP)), ledger_db.status(old).name) == (
        set(),
        "PENDING",
    )
    assert ledger_db.run(lambda c: routes_in_use(c, "other")) == {"route"}
