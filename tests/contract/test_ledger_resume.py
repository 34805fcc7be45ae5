"""A person's word that a route may take calls again: written once, audited, heard by all.

Every running agent learns it.
"""

from agent.ledger.route_resumes import resume, resumed, routes_in_use
from agent.maintenance.resume_listener import ResumeListener
from agent.ports import Clock
from schemas.ledger import tables
from schemas.runtime.clock import SystemClock
from tests.contract.ledger_parts import DEAD, GROUP, SNOOZE, Books


def say(books: Books, route: str, group: str = GROUP) -> None:
    books.run(lambda c: resume(c, group, route, "somebody@host"))


class Agent:
    """The duty of one agent, and the routes that it learned of."""

    def __init__(self, books: Books) -> None:
        self.told: list[str] = []
        clock: Clock = SystemClock()
        self._duty = ResumeListener(
            transactions=books.transactions,
            clock=clock,
            group=GROUP,
            resumed=self.told.append,
        )

    async def hears(self) -> list[str]:
        """Look once; return the new routes."""
        self.told.clear()
        await self._duty.look()
        return sorted(self.told)


async def test_every_agent_hears_it_once(books: Books) -> None:
    """Each time a person says it, each running agent learns it once."""
    first, second = Agent(books), Agent(books)
    assert (await first.hears(), await second.hears()) == ([], [])

    say(books, "a")
    say(books, "b")
    assert (await first.hears(), await second.hears()) == (["a", "b"], ["a", "b"])
    assert await first.hears() == []
    say(books, "a")

    assert (await first.hears(), await second.hears()) == (["a"], ["a"])


async def test_what_was_said_before_was_for_others(books: Books) -> None:
    """An agent that starts takes calls on every route anyway.

    What a person says about another group does not concern it.
    """
    say(books, "a")
    agent = Agent(books)
    assert await agent.hears() == []

    say(books, "a", group="other")

    assert await agent.hears() == []


def test_it_is_written_once_and_audited_each_time(books: Books) -> None:
    """Each group and route has one row, with the database's time.

    The audit says who did it, each time.
    """
    for group in (GROUP, GROUP, "other"):
        say(books, "ü" * 64, group)

    assert [(row.group_name, row.route) for row in books.rows(tables.route_resume)] == [
        (GROUP, "ü" * 64),
        ("other", "ü" * 64),
    ]
    assert [(row.actor, row.action) for row in books.rows(tables.audit)] == [
        ("somebody@host", "resume")
    ] * 3
    assert "of group other" in books.rows(tables.audit)[-1].detail
    assert set(books.run(lambda c: resumed(c, GROUP))) == {"ü" * 64}


def test_routes_in_use_are_those_of_the_last_day(books: Books) -> None:
    """A route is in use if an attempt of the group ended on it, whatever its outcome.

    A task that was only loaded has no route.
    """
    tried, _, old = books.load("tried", "loaded", "old")
    (others,) = books.load("others", into="others", group="other")
    owner = books.agent().next_owner()
    books.settle(books.claimed(tried, owner), owner, SNOOZE)
    assert books.run(lambda c: routes_in_use(c, GROUP)) == {"route"}

    books.ago(tables.tally.c.created_at, 90_000)
    assert books.run(lambda c: routes_in_use(c, GROUP)) == set()
    books.settle(books.claimed(others, owner), owner, DEAD)
    assert (books.run(lambda c: routes_in_use(c, GROUP)), books.status(old).name) == (
        set(),
        "PENDING",
    )
    assert books.run(lambda c: routes_in_use(c, "other")) == {"route"}
