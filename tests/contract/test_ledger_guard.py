"""Which tasks are given up, and which wait because their batch fails as a whole.

The settle decides this under lock, for all agents together.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from agent.ledger import settlements as settle
from agent.outcome import Dead, Failure
from agent.ports import Verdict
from agent.routes import RouteNames
from producer.ledger import guards
from schemas.ledger import tables
from schemas.settings.config import Config
from schemas.task.states import Status
from tests.contract.ledger_guards import (
    ROUTE,
    claimed,
    deaths,
    different,
    end,
    ended,
    exhausted,
    open_all,
    raised,
    settlements,
)
from tests.contract.ledger_parts import (
    BATCH,
    DEAD,
    GROUP,
    LONGEST,
    RETRY,
    SNOOZE,
    SPENT,
    SUCCEEDED,
    Books,
)

HELD = Verdict.HELD_BACK
WAITS_S = 0.5  # long enough for a transaction that does not wait


def test_the_last_failure_of_a_task_is_death_while_its_route_works(books: Books) -> None:
    """Something succeeded on the route lately, so the failure is the task's own fault."""
    end(books, SUCCEEDED, into="another")

    assert end(books, exhausted()) == [Verdict.SETTLED]
    assert (deaths(books), raised(books)) == (1, [])


def test_a_success_in_the_same_transaction_counts(books: Books) -> None:
    """A group of outcomes may hold the first success of a route."""
    assert end(books, exhausted(), SUCCEEDED) == [Verdict.SETTLED] * 2


def test_without_a_success_on_the_route_the_task_waits(books: Books) -> None:
    """The task waits in the longest tier, uncounted, with its own error.

    Its guard is raised in the same transaction, and a probe is due.
    """
    ((row, owner),) = claims = claimed(books, 1)

    verdicts, orders = ended(books, claims, exhausted())

    found = books.task(row.task_id)
    assert verdicts == [HELD]
    assert (found.status, found.owner, found.attempt, found.fence) == (Status.RETRYING, 0, 0, 1)
    assert 3590 < books.due_in_s(row.task_id) <= 3600 * 1.2
    assert [(order.destination, order.items) for order in orders] == [
        ("retry.1h", ((0, row.task_id, 1),))
    ]
    (attempt,) = books.rows(tables.task_attempt)
    assert (attempt.owner, attempt.outcome, attempt.error_class, attempt.error_text) == (
        owner,
        "moved",
        "HANDLER",
        "ValueError: no",
    )
    (guard,) = raised(books)
    assert (guard.batch, guard.type, guard.route, guard.cause) == (
        BATCH,
        "document",
        ROUTE,
        "no_success",
    )
    assert (
        guard.reason
        == "nothing has succeeded on this route in this group yet; HANDLER: ValueError: no"
    )
    assert guard.probe_in_s <= 0
    assert deaths(books) == 0


def test_a_success_on_another_route_says_nothing(books: Books) -> None:
    """Each route has a provider of its own."""
    end(books, SUCCEEDED, route="another")

    assert end(books, exhausted()) == [HELD]


def test_a_success_in_another_group_says_nothing(books: Books) -> None:
    """The other group's route of the same name may be another provider."""
    end(books, SUCCEEDED)
    books.set(tables.batch, books.batch().id, group_name="other")

    assert end(books, exhausted(), into="ours") == [HELD]


def test_models_that_differ_by_blanks_alone_have_guards_of_their_own(books: Books) -> None:
    """MariaDB compares texts without their trailing blanks.

    So the names of such routes differ in more than blanks.
    """
    names = RouteNames(Config())
    ends = [
        one
        for model in ("m", "m ", "m  ")
        for one in settlements(claimed(books, 1), [exhausted()], names.name_of("document", model))
    ]

    verdicts, _ = books.settle_all(ends)

    assert verdicts == [HELD] * 3
    assert len(raised(books)) == 3


def test_a_success_is_forgotten_after_ten_minutes(books: Books) -> None:
    """The provider may have gone since."""
    end(books, SUCCEEDED)
    books.ago(tables.tally.c.created_at, 601)

    assert end(books, exhausted()) == [HELD]


@pytest.mark.parametrize("disposition", ["permanent", "expired", "rejected"])
def test_other_deaths_are_never_held_back(books: Books, disposition: str) -> None:
    """A batch whose documents are all too long dies task by task.

    It raises no guard and holds no task back.
    """
    assert (
        end(books, *[Dead(Failure("TOO_LONG", "too long"), SPENT, disposition)] * 30)
        == [Verdict.SETTLED] * 30
    )
    assert (deaths(books), raised(books), books.count(tables.guard)) == (30, [], 0)


def test_other_deaths_go_on_while_the_guard_is_raised(books: Books) -> None:
    """A guard holds back only tasks that another attempt could change."""
    end(books, exhausted())

    assert end(books, DEAD, RETRY, SNOOZE, SUCCEEDED) == [Verdict.SETTLED] * 4
    assert len(raised(books)) == 1


def test_ten_deaths_in_a_row_are_the_limit_within_one_transaction(books: Books) -> None:
    """A handler that raises on every task kills ten; the others of the group wait."""
    end(books, *[SUCCEEDED] * 20)

    verdicts = end(books, *[exhausted()] * 50)

    assert (verdicts.count(Verdict.SETTLED), verdicts.count(HELD), deaths(books)) == (10, 40, 10)
    (guard,) = raised(books)
    assert (
        guard.reason
        == "the last 10 tasks were given up on for the same error; HANDLER: ValueError: no"
    )
    assert guard.cause == "handler"


def test_failures_of_calls_and_of_handlers_have_different_causes(books: Books) -> None:
    """A provider that answers a prompt tells nothing of a handler."""
    end(books, SUCCEEDED)
    end(books, *[exhausted("no JSON", "BAD_OUTPUT")] * 12)
    end(books, *[exhausted("not mounted", "DOCUMENT_UNREADABLE")] * 12, into="another")

    assert [one.cause for one in raised(books)] == ["exhausted", "handler"]


def test_ten_deaths_in_a_row_are_the_limit_over_many_transactions(books: Books) -> None:
    """Tasks that other agents settled before count, in their order."""
    end(books, *[SUCCEEDED] * 20)

    verdicts = [end(books, exhausted())[0] for _ in range(15)]

    assert verdicts == [Verdict.SETTLED] * 10 + [HELD] * 5


def test_most_of_a_batch_failing_is_a_failure_as_a_whole(books: Books) -> None:
    """The guard is raised when more than half of the ended tasks were given up, not before.

    The tasks may have different errors.
    """
    end(books, *[SUCCEEDED] * 14)
    assert end(books, *different(14)) == [Verdict.SETTLED] * 14

    assert end(books, *different(3)) == [Verdict.SETTLED, HELD, HELD]
    assert raised(books)[0].reason.startswith(
        "15 of the last 29 tasks were given up on; HANDLER: error x"
    )


def test_deaths_of_the_input_are_no_failure_as_a_whole(books: Books) -> None:
    """Deaths of the input count as tasks that ended otherwise, whatever their class."""
    end(books, SUCCEEDED, *[Dead(Failure("HANDLER", "ValueError: no"), SPENT)] * 40)

    assert end(books, *[exhausted("another")] * 9) == [Verdict.SETTLED] * 9
    assert raised(books) == []


def test_a_guard_is_its_own_batchs(books: Books) -> None:
    """Tasks of another batch on the same route go on dying one by one."""
    end(books, SUCCEEDED, *[exhausted()] * 12)
    assert len(raised(books)) == 1

    assert end(books, exhausted(), into="another") == [Verdict.SETTLED]
    assert len(raised(books)) == 1


def test_two_keys_of_one_transaction_are_judged_apart(books: Books) -> None:
    """A group of settles holds tasks of many batches."""
    end(books, SUCCEEDED)
    claims = claimed(books, 12) + claimed(books, 2, into="another")

    verdicts, _ = ended(books, claims, *[exhausted()] * 14)

    assert verdicts == [Verdict.SETTLED] * 10 + [HELD] * 2 + [Verdict.SETTLED] * 2
    assert [one.batch for one in raised(books)] == [BATCH]


def test_many_agents_together_give_up_ten(books: Books) -> None:
    """A settle that gives up tasks of a key waits for another settle of the same key.

    So each counts the other's deaths.
    """
    end(books, *[SUCCEEDED] * 3, exhausted())
    first, second = (settlements(claimed(books, 5), [exhausted()] * 5) for _ in range(2))

    with ThreadPoolExecutor(1) as pool, books.database.engine.begin() as connection:
        verdicts, _ = settle.settle(connection, GROUP, first, 0.0, LONGEST)
        others = pool.submit(books.settle_all, second)
        with pytest.raises(TimeoutError):
            others.result(timeout=WAITS_S)
        connection.commit()
        verdicts += others.result()[0]

    assert verdicts == [Verdict.SETTLED] * 9 + [HELD]
    assert (deaths(books), len(raised(books))) == (10, 1)


def test_a_cancelled_batch_is_not_moved(books: Books) -> None:
    """A task that a guard would hold back ends as cancelled if its batch was cancelled."""
    claims = claimed(books, 1)
    books.cancel()

    verdicts, orders = ended(books, claims, exhausted())

    assert books.status(claims[0][0].task_id) is Status.CANCELLED
    assert (verdicts, orders) == ([Verdict.SETTLED], [])


def test_a_settle_that_ran_twice_holds_back_once(books: Books) -> None:
    """After a lost COMMIT the transaction runs again, and finds its own rows."""
    claims = claimed(books, 1)
    ended(books, claims, exhausted())
    before = [books.rows(table) for table in tables.metadata.sorted_tables]

    assert ended(books, claims, exhausted()) == ([Verdict.SETTLED], [])
    assert [books.rows(table) for table in tables.metadata.sorted_tables] == before


def test_opening_forgives_what_was_before(books: Books) -> None:
    """Ten more tasks may die, then the guard is raised again."""
    end(books, SUCCEEDED, *[exhausted()] * 12)
    open_all(books)
    assert raised(books) == []

    assert end(books, *[exhausted()] * 12) == [Verdict.SETTLED] * 10 + [HELD] * 2
    assert len(raised(books)) == 1


def test_opening_vouches_for_the_route(books: Books) -> None:
    """After a person says that the route works, the last task dies.

    Ten minutes later this no longer counts.
    """
    end(books, exhausted())
    open_all(books)

    assert end(books, exhausted()) == [Verdict.SETTLED]
    books.ago(tables.guard.c.opened_at, 601)
    assert end(books, exhausted()) == [HELD]


def test_an_opening_is_audited_once(books: Books) -> None:
    """The audit has actor, action and reason; a second opening changes nothing."""
    end(books, exhausted())
    (guard,) = raised(books)
    open_all(books)

    assert not books.run(lambda c: guards.open_one(c, guard, "another", "late"))
    (entry,) = books.rows(tables.audit)
    assert (entry.actor, entry.action, entry.detail) == (
        "somebody",
        "guard open",
        "batch batch, type document, route route: by hand",
    )


def test_guards_are_their_groups_own(books: Books) -> None:
    """Another group does not see them."""
    end(books, exhausted())

    assert books.run(lambda c: guards.read(c, "other")) == []
    assert len(books.run(lambda c: guards.read(c, GROUP))) == 1


def test_a_guard_for_lost_agents_holds_every_route_back(books: Books) -> None:
    """A row that names no route applies to all routes."""
    end(books, exhausted())
    (guard,) = raised(books)
    books.set(tables.guard, guard.id, route="", cause="worker_lost")

    assert end(books, SUCCEEDED, exhausted(), route="another") == [Verdict.SETTLED, HELD]
    assert [one.route for one in raised(books)] == [""]
