"""Which tasks are given up, and which wait because their batch fails as a whole.

The settle decides this under lock, for all agents together.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from docllm.agent.ledger.settlements.settling import settle
from docllm.agent.ports import Verdict
from docllm.agent.ports.outcome import Dead, Failure
from docllm.agent.routes import RouteNames
from docllm.producer.ledger import guards
from docllm.schemas.ledger import tables
from docllm.schemas.settings.config import Config
from docllm.schemas.task.failures import Disposition, ErrorClass
from docllm.schemas.task.states import Status
from tests.contract.guards.steps import (
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
from tests.support.ledger_database import (
    BATCH,
    DEAD,
    GROUP,
    LONGEST,
    RETRY,
    SNOOZE,
    SPENT,
    SUCCEEDED,
    LedgerDatabase,
)

HELD = Verdict.HELD_BACK
WAITS_S = 0.5  # long enough for a transaction that does not wait


def test_the_last_failure_of_a_task_is_death_while_its_route_works(
    ledger_db: LedgerDatabase,
) -> None:
    """Something succeeded on the route lately, so the failure is the task's own fault."""
    end(ledger_db, SUCCEEDED, into="another")

    assert end(ledger_db, exhausted()) == [Verdict.SETTLED]
    assert (deaths(ledger_db), raised(ledger_db)) == (1, [])


def test_a_success_in_the_same_transaction_counts(ledger_db: LedgerDatabase) -> None:
    """A page of outcomes may hold the first success of a route."""
    assert end(ledger_db, exhausted(), SUCCEEDED) == [Verdict.SETTLED] * 2


def test_without_a_success_on_the_route_the_task_waits(ledger_db: LedgerDatabase) -> None:
    """The task waits in the ledger, uncounted, with its own error.

    Its guard is raised in the same transaction, and a look is due.
    """
    ((row, owner),) = claims = claimed(ledger_db, 1)

    verdicts, orders = ended(ledger_db, claims, exhausted())

    task = ledger_db.task(row.task_id)
    assert verdicts == [HELD]
    assert (task.status, task.owner, task.attempt, task.fence) == (Status.RETRYING, 0, 0, 1)
    assert 3590 < ledger_db.due_in_s(row.task_id) <= 3600 * 1.2
    assert orders == []
    (wait,) = ledger_db.rows(tables.waiting)
    assert (wait.task_id, wait.fence, wait.reason) == (row.task_id, 1, "GUARD")
    (attempt,) = ledger_db.rows(tables.task_attempt)
    assert (attempt.owner, attempt.outcome, attempt.error_class, attempt.error_text) == (
        owner,
        "moved",
        "HANDLER",
        "ValueError: no",
    )
    (guard,) = raised(ledger_db)
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
    assert guard.probe_due_in_s <= 0
    assert deaths(ledger_db) == 0


def test_a_success_on_another_route_does_not_count(ledger_db: LedgerDatabase) -> None:
    """Each route has a provider of its own."""
    end(ledger_db, SUCCEEDED, route="another")

    assert end(ledger_db, exhausted()) == [HELD]


def test_a_success_in_another_group_does_not_count(ledger_db: LedgerDatabase) -> None:
    """The other group's route of the same name may be another provider."""
    end(ledger_db, SUCCEEDED)
    ledger_db.set(tables.batch, ledger_db.batch().id, group_name="other")

    assert end(ledger_db, exhausted(), into="ours") == [HELD]


def test_models_that_differ_by_blanks_alone_have_guards_of_their_own(
    ledger_db: LedgerDatabase,
) -> None:
    """MariaDB compares texts without their trailing blanks.

    So the names of such routes differ in more than blanks.
    """
    names = RouteNames(Config())
    ends = [
        settlement
        for model in ("m", "m ", "m  ")
        for settlement in settlements(
            claimed(ledger_db, 1), [exhausted()], names.name_of("document", model)
        )
    ]

    verdicts, _ = ledger_db.settle_all(ends)

    assert verdicts == [HELD] * 3
    assert len(raised(ledger_db)) == 3


def test_a_success_is_forgotten_after_ten_minutes(ledger_db: LedgerDatabase) -> None:
    """The provider may have gone since."""
    end(ledger_db, SUCCEEDED)
    ledger_db.ago(tables.tally.c.created_at, 601)

    assert end(ledger_db, exhausted()) == [HELD]


@pytest.mark.parametrize(
    "disposition", [Disposition.PERMANENT, Disposition.EXPIRED, Disposition.REJECTED]
)
def test_other_deaths_are_never_held_back(
    ledger_db: LedgerDatabase, disposition: Disposition
) -> None:
    """A batch whose documents are all too long dies task by task.

    It raises no guard and holds no task back.
    """
    assert (
        end(ledger_db, *[Dead(Failure(ErrorClass.TOO_LONG, "too long"), SPENT, disposition)] * 30)
        == [Verdict.SETTLED] * 30
    )
    assert (deaths(ledger_db), raised(ledger_db), ledger_db.count(tables.guard)) == (30, [], 0)


def test_other_deaths_go_on_while_the_guard_is_raised(ledger_db: LedgerDatabase) -> None:
    """A guard holds back only tasks that another attempt could change."""
    end(ledger_db, exhausted())

    assert end(ledger_db, DEAD, RETRY, SNOOZE, SUCCEEDED) == [Verdict.SETTLED] * 4
    assert len(raised(ledger_db)) == 1


def test_ten_deaths_in_a_row_are_the_limit_within_one_transaction(
    ledger_db: LedgerDatabase,
) -> None:
    """A handler that raises on every task kills ten; the others of the group wait."""
    end(ledger_db, *[SUCCEEDED] * 20)

    verdicts = end(ledger_db, *[exhausted()] * 50)

    assert (verdicts.count(Verdict.SETTLED), verdicts.count(HELD), deaths(ledger_db)) == (
        10,
        40,
        10,
    )
    (guard,) = raised(ledger_db)
    assert (
        guard.reason
        == "the last 10 tasks were given up on for the same error; HANDLER: ValueError: no"
    )
    assert guard.cause == "handler"


def test_failures_of_calls_and_of_handlers_have_different_causes(ledger_db: LedgerDatabase) -> None:
    """A provider that answers a prompt tells nothing of a handler."""
    end(ledger_db, SUCCEEDED)
    end(ledger_db, *[exhausted("no JSON", "BAD_OUTPUT")] * 12)
    end(ledger_db, *[exhausted("not mounted", "DOCUMENT_UNREADABLE")] * 12, into="another")

    assert [guard.cause for guard in raised(ledger_db)] == ["exhausted", "handler"]


def test_ten_deaths_in_a_row_are_the_limit_over_many_transactions(
    ledger_db: LedgerDatabase,
) -> None:
    """Tasks that other agents settled before count, in their order."""
    end(ledger_db, *[SUCCEEDED] * 20)

    verdicts = [end(ledger_db, exhausted())[0] for _ in range(15)]

    assert verdicts == [Verdict.SETTLED] * 10 + [HELD] * 5


def test_most_of_a_batch_failing_is_a_failure_as_a_whole(ledger_db: LedgerDatabase) -> None:
    """The guard is raised when more than half of the ended tasks were given up, not before.

    The tasks may have different errors.
    """
    end(ledger_db, *[SUCCEEDED] * 14)
    assert end(ledger_db, *different(14)) == [Verdict.SETTLED] * 14

    assert end(ledger_db, *different(3)) == [Verdict.SETTLED, HELD, HELD]
    assert raised(ledger_db)[0].reason.startswith(
        "15 of the last 29 tasks were given up on; HANDLER: error x"
    )


def test_deaths_of_the_input_are_no_failure_as_a_whole(ledger_db: LedgerDatabase) -> None:
    """Deaths of the input count as tasks that ended otherwise, whatever their class."""
    end(ledger_db, SUCCEEDED, *[Dead(Failure(ErrorClass.HANDLER, "ValueError: no"), SPENT)] * 40)

    assert end(ledger_db, *[exhausted("another")] * 9) == [Verdict.SETTLED] * 9
    assert raised(ledger_db) == []


def test_a_guard_stops_only_its_own_batch(ledger_db: LedgerDatabase) -> None:
    """Tasks of another batch on the same route go on dying one by one."""
    end(ledger_db, SUCCEEDED, *[exhausted()] * 12)
    assert len(raised(ledger_db)) == 1

    assert end(ledger_db, exhausted(), into="another") == [Verdict.SETTLED]
    assert len(raised(ledger_db)) == 1


def test_two_keys_of_one_transaction_are_judged_apart(ledger_db: LedgerDatabase) -> None:
    """A page of settles holds tasks of many batches."""
    end(ledger_db, SUCCEEDED)
    claims = claimed(ledger_db, 12) + claimed(ledger_db, 2, into="another")

    verdicts, _ = ended(ledger_db, claims, *[exhausted()] * 14)

    assert verdicts == [Verdict.SETTLED] * 10 + [HELD] * 2 + [Verdict.SETTLED] * 2
    assert [guard.batch for guard in raised(ledger_db)] == [BATCH]


def test_many_agents_together_give_up_ten(ledger_db: LedgerDatabase) -> None:
    """A settle that gives up tasks of a key waits for another settle of the same key.

    So each counts the other's deaths.
    """
    end(ledger_db, *[SUCCEEDED] * 3, exhausted())
    first, second = (settlements(claimed(ledger_db, 5), [exhausted()] * 5) for _ in range(2))

    with ThreadPoolExecutor(1) as pool, ledger_db.database.engine.begin() as connection:
        verdicts, _ = settle(
            connection, group=GROUP, settlements=first, now_utc_s=0.0, longest_tier=LONGEST
        )
        others = pool.submit(ledger_db.settle_all, second)
        with pytest.raises(TimeoutError):
            others.result(timeout=WAITS_S)
        connection.commit()
        verdicts += others.result()[0]

    assert verdicts == [Verdict.SETTLED] * 9 + [HELD]
    assert (deaths(ledger_db), len(raised(ledger_db))) == (10, 1)


def test_a_cancelled_batch_is_not_moved(ledger_db: LedgerDatabase) -> None:
    """A task that a guard would hold back ends as cancelled if its batch was cancelled."""
    claims = claimed(ledger_db, 1)
    ledger_db.cancel()

    verdicts, orders = ended(ledger_db, claims, exhausted())

    assert ledger_db.status(claims[0][0].task_id) is Status.CANCELLED
    assert (verdicts, orders) == ([Verdict.CANCELLED], [])


def test_a_settle_that_ran_twice_holds_back_once(ledger_db: LedgerDatabase) -> None:
    """After a lost COMMIT the transaction runs again, and finds its own rows."""
    claims = claimed(ledger_db, 1)
    ended(ledger_db, claims, exhausted())
    before = [ledger_db.rows(table) for table in tables.metadata.sorted_tables]

    assert ended(ledger_db, claims, exhausted()) == ([HELD], [])
    assert [ledger_db.rows(table) for table in tables.metadata.sorted_tables] == before


def test_opening_a_guard_forgets_earlier_failures(ledger_db: LedgerDatabase) -> None:
    """Ten more tasks may die, then the guard is raised again."""
    end(ledger_db, SUCCEEDED, *[exhausted()] * 12)
    open_all(ledger_db)
    assert raised(ledger_db) == []

    assert end(ledger_db, *[exhausted()] * 12) == [Verdict.SETTLED] * 10 + [HELD] * 2
    assert len(raised(ledger_db)) == 1


def test_opening_shows_that_the_route_works(ledger_db: LedgerDatabase) -> None:
    """After a person says that the route works, the last task dies.

    Ten minutes later this no longer counts.
    """
    end(ledger_db, exhausted())
    open_all(ledger_db)

    assert end(ledger_db, exhausted()) == [Verdict.SETTLED]
    ledger_db.ago(tables.guard.c.opened_at, 601)
    assert end(ledger_db, exhausted()) == [HELD]


def test_an_opening_is_audited_once(ledger_db: LedgerDatabase) -> None:
    """The audit has actor, action and reason; a second opening changes nothing."""
    end(ledger_db, exhausted())
    (guard,) = raised(ledger_db)
    open_all(ledger_db)

    assert not ledger_db.run(lambda c: guards.open_one(c, guard, "another", "late"))
    (entry,) = ledger_db.rows(tables.audit)
    assert (entry.actor, entry.action, entry.detail) == (
        "somebody",
        "guard open",
        "batch batch, type document, route route: by hand",
    )


def test_a_guard_is_not_opened_for_an_earlier_raising(ledger_db: LedgerDatabase) -> None:
    """An agent that was late may know a guard that another has opened, and deaths raised again."""
    end(ledger_db, exhausted())
    (known,) = raised(ledger_db)
    open_all(ledger_db)
    end(ledger_db, SUCCEEDED, *[exhausted()] * 12)

    assert not ledger_db.run(lambda c: guards.open_one(c, known, "another agent", "late"))
    assert [guard.cause for guard in raised(ledger_db)] == ["handler"]


def test_guards_are_their_groups_own(ledger_db: LedgerDatabase) -> None:
    """Another group does not see them."""
    end(ledger_db, exhausted())

    assert ledger_db.run(lambda c: guards.read_guards(c, "other")) == []
    assert len(ledger_db.run(lambda c: guards.read_guards(c, GROUP))) == 1


def test_a_guard_for_lost_agents_holds_every_route_back(ledger_db: LedgerDatabase) -> None:
    """A row that names no route applies to all routes."""
    end(ledger_db, exhausted())
    (guard,) = raised(ledger_db)
    ledger_db.set(tables.guard, guard.id, route="", cause="worker_lost")

    assert end(ledger_db, SUCCEEDED, exhausted(), route="another") == [Verdict.SETTLED, HELD]
    assert [hold.route for hold in raised(ledger_db)] == [""]
