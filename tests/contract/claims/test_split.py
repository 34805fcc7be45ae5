"""The outcomes of a page do not fail together.

A row that cannot be written dies alone, and the others settle.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from sqlalchemy import Connection, insert
from sqlalchemy.exc import OperationalError

from docllm.agent.ledger.claims import claiming
from docllm.agent.ledger.settlements import settling
from docllm.agent.ledger.sql_ledger import Executors, SqlLedger
from docllm.agent.ports import ClaimAnswer, RejectedRecord, Row, Settlement, Verdict
from docllm.agent.ports.outcome import Dead, Failure, Outcome, Spent, Succeeded
from docllm.producer.ports import Order
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.database import Database, Stopped
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.executors import ThreadExecutor
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.result.codec import COMPLETION
from docllm.schemas.task.states import Status
from tests.support.ledger_database import (
    DEAD,
    GROUP,
    LONGEST,
    RETRY,
    SPENT,
    SUCCEEDED,
    LedgerDatabase,
    only_sqlite,
    settlement,
)


@pytest.fixture
def executors() -> Iterator[Executors]:
    executors = Executors(
        ThreadExecutor("claim"), ThreadExecutor("settle"), ThreadExecutor("background")
    )
    yield executors
    for executor in (executors.claim, executors.settle, executors.background):
        assert isinstance(executor, ThreadExecutor)
        executor.close()


def sql_ledger(ledger_db: LedgerDatabase, executors: Executors) -> SqlLedger:
    return SqlLedger(
        database=ledger_db.database,
        group=GROUP,
        clock=SystemClock(),
        executors=executors,
        longest_tier=LONGEST,
    )


def claimed(ledger_db: LedgerDatabase, count: int) -> list[tuple[Row, int]]:
    """Claim `count` new tasks under one owner."""
    owner = ledger_db.agent().next_owner()
    return [
        (ledger_db.claimed(task_id, owner), owner)
        for task_id in ledger_db.load(*(f"task {number}" for number in range(count)))
    ]


def settled_group(
    ledger_db: LedgerDatabase, executors: Executors, bad: Outcome
) -> tuple[list[Verdict], list[Status]]:
    """Settle four successes around one bad outcome in third place."""
    rows = claimed(ledger_db, 5)
    outcomes: list[Outcome] = [SUCCEEDED, SUCCEEDED, bad, SUCCEEDED, SUCCEEDED]
    group = [
        settlement(row, owner, outcome)
        for (row, owner), outcome in zip(rows, outcomes, strict=True)
    ]
    verdicts, _ = asyncio.run(sql_ledger(ledger_db, executors).settle(group))
    return verdicts, [ledger_db.status(row.task_id) for row, _ in rows]


BAD: dict[str, Outcome] = {
    "a body of the wrong type": replace(SUCCEEDED, body=cast("bytes", ["no bytes"])),
    "a body that is text": replace(SUCCEEDED, body=cast("bytes", object())),
    "tokens that are no number": replace(
        SUCCEEDED, spent=replace(SPENT, tokens_in=cast("int", "many"))
    ),
    "a cost that no column holds": replace(SUCCEEDED, spent=replace(SPENT, cost_micro=1 << 70)),
    "a codec that no column holds": replace(SUCCEEDED, codec=1 << 70),
    "a duration before all time": replace(DEAD, spent=replace(SPENT, duration_ms=1 << 60)),
    "no spent at all": replace(SUCCEEDED, spent=cast("Spent", None)),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_one_bad_row_dies_alone(
    ledger_db: LedgerDatabase, executors: Executors, bad: Outcome
) -> None:
    """Whatever the driver says of one outcome, the others of its group settle.

    Its task is dead with class SETTLE, without its body.
    """
    verdicts, states = settled_group(ledger_db, executors, bad)

    good = Status.SUCCEEDED
    assert verdicts == [Verdict.SETTLED] * 5
    assert states == [good, good, Status.DEAD, good, good]
    (letter,) = ledger_db.rows(tables.dead_letter)
    assert (letter.error_class, letter.disposition) == ("SETTLE", "permanent")
    assert ledger_db.count(tables.task_result) == 4
    assert [order.destination for order in ledger_db.rows(tables.outbox)] == ["dlq"]


def test_the_cost_of_an_unwritable_result_is_recorded(
    ledger_db: LedgerDatabase, executors: Executors
) -> None:
    """The answer is lost, but its cost is kept."""
    settled_group(ledger_db, executors, BAD["a body of the wrong type"])

    (attempt,) = ledger_db.rows(tables.task_attempt)
    assert (attempt.error_class, attempt.cost_micro) == ("SETTLE", SPENT.cost_micro)


def test_a_row_whose_result_exists_dies_alone(
    ledger_db: LedgerDatabase, executors: Executors
) -> None:
    """A result that nobody can have written (1062) concerns one task.

    That task is dead, and the result that was there stays.
    """
    rows = claimed(ledger_db, 3)
    strange = {"task_id": rows[1][0].task_id, "owner": 99, "body": b"strange"}
    ledger_db.run(lambda c: c.execute(insert(tables.task_result), strange))

    verdicts, _ = asyncio.run(
        sql_ledger(ledger_db, executors).settle(
            [settlement(row, owner, SUCCEEDED) for row, owner in rows]
        )
    )

    assert verdicts == [Verdict.SETTLED] * 3
    assert [ledger_db.status(row.task_id) for row, _ in rows] == [
        Status.SUCCEEDED,
        Status.DEAD,
        Status.SUCCEEDED,
    ]
    assert [result.body for result in ledger_db.rows(tables.task_result)] == [
        b"answer",
        b"strange",
        b"answer",
    ]


@pytest.mark.parametrize(
    "text", ["broken \ud800 half", "bytes \udcff", "nul \0 and ünïcode \U0001f600", "long " * 5000]
)
def test_any_error_text_can_be_settled(
    ledger_db: LedgerDatabase, executors: Executors, text: str
) -> None:
    """A text with half a surrogate pair, a NUL or too many letters is stored as far as possible.

    Its outcome stands.
    """
    verdicts, states = settled_group(
        ledger_db, executors, Dead(Failure(ErrorClass.BAD_REQUEST, text), SPENT)
    )

    assert verdicts == [Verdict.SETTLED] * 5
    assert states[2] is Status.DEAD
    (letter,) = ledger_db.rows(tables.dead_letter)
    assert letter.error_class == "BAD_REQUEST"
    assert letter.error_text == text.encode("utf-8", "replace").decode()[:2000]


def test_a_reply_with_any_bytes_comes_back_as_it_was(
    ledger_db: LedgerDatabase, executors: Executors
) -> None:
    """All 256 bytes, per cent signs and quotes go in and out unchanged, 3 MiB of them too."""
    body = bytes(range(256)) + b"%s %(x)s '\"\\" + b"\xff\0" * (3 << 19)
    ((row, owner),) = claimed(ledger_db, 1)

    verdicts, _ = asyncio.run(
        sql_ledger(ledger_db, executors).settle(
            [settlement(row, owner, Succeeded(body, COMPLETION, SPENT))]
        )
    )

    assert verdicts == [Verdict.SETTLED]
    assert ledger_db.rows(tables.task_result)[0].body == body


def failing(
    monkeypatch: pytest.MonkeyPatch, error: Callable[[list[Settlement]], Exception | None]
) -> list[int]:
    """Let settles raise what `error` returns for their group; return the tried group sizes."""
    sizes: list[int] = []
    real = settling.settle

    def fail(
        connection: Connection,
        group: str,
        settlements: list[Settlement],
        *rest: Any,
        **named: Any,
    ) -> object:
        sizes.append(len(settlements))
        raised = error(settlements)
        if raised is not None:
            raise raised
        return real(connection, group, settlements, *rest, **named)

    monkeypatch.setattr("docllm.agent.ledger.sql_ledger.settle", fail)
    return sizes


def mysql_error(number: int) -> OperationalError:
    return OperationalError("a statement", {}, Exception(number, "said the server"))


def test_a_row_that_cannot_even_die_is_given_up(
    ledger_db: LedgerDatabase, executors: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that cannot even be settled as dead is left until the time of its claim is over.

    The others settle.
    """
    rows = claimed(ledger_db, 4)
    cursed = rows[0][0].task_id
    failing(
        monkeypatch,
        lambda group: (
            ValueError("no")
            if any(settlement.row.task_id == cursed for settlement in group)
            else None
        ),
    )

    verdicts, _ = asyncio.run(
        sql_ledger(ledger_db, executors).settle(
            [settlement(row, owner, SUCCEEDED) for row, owner in rows]
        )
    )

    assert verdicts == [Verdict.GIVEN_UP, *[Verdict.SETTLED] * 3]
    assert ledger_db.status(cursed) is Status.PROCESSING


def test_a_broken_promise_of_one_row_ends_no_other(
    ledger_db: LedgerDatabase, executors: Executors
) -> None:
    """A row whose fence is not its claim's under the same owner is given up.

    Its neighbours settle.
    """
    rows = claimed(ledger_db, 2)
    ledger_db.set(tables.task, rows[0][0].task_id, fence=7)

    verdicts, _ = asyncio.run(
        sql_ledger(ledger_db, executors).settle(
            [settlement(row, owner, SUCCEEDED) for row, owner in rows]
        )
    )

    assert verdicts == [Verdict.GIVEN_UP, Verdict.SETTLED]


@pytest.mark.parametrize("number", [1213, 1205, 1020, 1290, 1836, 1040, 1203])
def test_a_server_that_cannot_take_them_now_decides_nothing(
    ledger_db: LedgerDatabase, executors: Executors, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The group stays whole, however often the server cannot take it now.

    The cause may be a deadlock, a lock wait, a read-only server, or no free connection.
    """
    rows = claimed(ledger_db, 3)
    errors = [mysql_error(number) for _ in range(12)]
    sizes = failing(monkeypatch, lambda _: errors.pop() if errors else None)
    monkeypatch.setattr(ledger_db.database, "pause", lambda _count: None)

    verdicts, _ = asyncio.run(
        sql_ledger(ledger_db, executors).settle(
            [settlement(row, owner, SUCCEEDED) for row, owner in rows]
        )
    )

    assert verdicts == [Verdict.SETTLED] * 3
    assert sizes == [3] * 13
    assert ledger_db.count(tables.dead_letter) == 0


def test_a_group_that_loses_its_connection_again_and_again_is_split(
    ledger_db: LedgerDatabase, executors: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that makes the server hang up, while it answers others, is found.

    The group is halved until the row is alone.
    """
    rows = claimed(ledger_db, 4)
    poison = rows[3][0].task_id

    def hangs_up(group: list[Settlement]) -> OperationalError | None:
        return (
            mysql_error(2013)
            if any(
                settlement.row.task_id == poison and settlement.outcome is SUCCEEDED
                for settlement in group
            )
            else None
        )

    sizes = failing(monkeypatch, hangs_up)
    pauses: list[int] = []
    monkeypatch.setattr(ledger_db.database, "pause", pauses.append)

    verdicts, _ = asyncio.run(
        sql_ledger(ledger_db, executors).settle(
            [settlement(row, owner, SUCCEEDED) for row, owner in rows]
        )
    )

    assert verdicts == [Verdict.SETTLED] * 4
    assert sizes == [*[4] * 5, 2, *[2] * 5, 1, *[1] * 60, 1]
    assert pauses == [1, 2, 3, 4] * 2 + [*range(1, 60)]
    assert ledger_db.status(poison) is Status.DEAD


def test_a_way_that_breaks_now_and_then_costs_no_paid_answer(
    ledger_db: LedgerDatabase, executors: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that answers takes all results, although a settle loses forty connections."""
    rows = claimed(ledger_db, 2)
    losses = [mysql_error(2013) for _ in range(40)]
    sizes = failing(monkeypatch, lambda _: losses.pop() if losses else None)
    monkeypatch.setattr(ledger_db.database, "pause", lambda _count: None)

    verdicts, _ = asyncio.run(
        sql_ledger(ledger_db, executors).settle(
            [settlement(row, owner, SUCCEEDED) for row, owner in rows]
        )
    )

    assert verdicts == [Verdict.SETTLED] * 2
    assert sizes == [*[2] * 5, *[1] * 37]
    assert [ledger_db.status(row.task_id) for row, _ in rows] == [Status.SUCCEEDED] * 2


@pytest.mark.parametrize("number", [2013, 1045, 1064])
def test_while_the_server_does_not_answer_nothing_is_decided(
    ledger_db: LedgerDatabase, executors: Executors, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A server that goes away again and again, with any error, splits no group.

    No row is given up.
    """
    rows = claimed(ledger_db, 3)
    outages = [3, 1, 4, 1, 5]  # how often in a row the server does not answer
    sizes = failing(monkeypatch, lambda _: mysql_error(number) if outages else None)

    def answers() -> bool:
        if outages and outages[0]:
            outages[0] -= 1
            return False
        del outages[:1]
        return True

    monkeypatch.setattr(ledger_db.database, "answers", answers)
    monkeypatch.setattr(ledger_db.database, "_pause", lambda _delay_s: None)

    verdicts, _ = asyncio.run(
        sql_ledger(ledger_db, executors).settle(
            [settlement(row, owner, SUCCEEDED) for row, owner in rows]
        )
    )

    assert verdicts == [Verdict.SETTLED] * 3
    assert sizes == [3] * 6
    assert ledger_db.count(tables.dead_letter) == 0


@only_sqlite
def test_a_program_that_leaves_ends_the_wait(
    ledger_db: LedgerDatabase, executors: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the program leaves during an outage, the settle raises Stopped.

    Nothing was decided.
    """
    ((row, owner),) = claimed(ledger_db, 1)
    failing(monkeypatch, lambda _: mysql_error(2003))
    database = Database(str(ledger_db.database.engine.url))
    monkeypatch.setattr(database, "answers", lambda: False)
    database.close()
    ledger = SqlLedger(
        database=database,
        group=GROUP,
        clock=SystemClock(),
        executors=executors,
        longest_tier=LONGEST,
    )

    with pytest.raises(Stopped):
        asyncio.run(ledger.settle([settlement(row, owner, SUCCEEDED)]))
    database.engine.dispose()  # it was closed before

    assert ledger_db.status(row.task_id) is Status.PROCESSING


def test_the_port_claims_settles_and_releases_through_threads(
    ledger_db: LedgerDatabase, executors: Executors
) -> None:
    """More records than one page are claimed, some settled, the rest released.

    This runs on real threads side by side.
    """
    ids = ledger_db.load(*(f"task {number}" for number in range(600)))
    lease = ledger_db.agent()
    first, second = lease.next_owner(), lease.next_owner()
    ledger = sql_ledger(ledger_db, executors)

    async def work() -> list[Verdict]:
        answers = (
            await asyncio.gather(
                *(
                    ledger.claim([ledger_db.record(task_id) for task_id in ids], owner, 600.0)
                    for owner in (first, second)
                )
            )
        )[0]
        rows = [
            row
            for answer, row in answers.values()
            if answer is ClaimAnswer.CLAIMED and row is not None
        ]
        assert len(rows) == 600
        settling = [
            settlement(row, first, RETRY if row.task_id % 2 else SUCCEEDED) for row in rows[:500]
        ]
        verdicts, orders = await ledger.settle(settling)
        assert {order.destination for order in orders} == {"retry.30s"}
        ledger_db.call(claiming.release, first, [row.task_id for row in rows])
        asked = await ledger.ask([ledger_db.record(row.task_id) for row in rows[500:]])
        assert {answer for answer, _ in asked.values()} == {ClaimAnswer.CLAIMABLE}
        assert len(await ledger.bodies([row.task_id for row in rows[:3]])) == 3
        return verdicts

    assert asyncio.run(work()) == [Verdict.SETTLED] * 500


def test_two_settles_at_once_settle_each_task_once(ledger_db: LedgerDatabase) -> None:
    """They have the same rows in opposite orders, and each repeats the other's outcomes."""
    rows = claimed(ledger_db, 60)
    twice = ThreadExecutor("settle", threads=2)
    ledger = sql_ledger(ledger_db, Executors(twice, twice, twice, settles_at_once=2))
    group = [
        settlement(row, owner, RETRY if row.task_id % 3 == 0 else SUCCEEDED) for row, owner in rows
    ]

    async def work() -> list[tuple[list[Verdict], list[Order]]]:
        pages = [part for half in (group[:40], group[20:]) for part in (half, half[::-1])]
        return await asyncio.gather(*map(ledger.settle, pages))

    settled = asyncio.run(work())
    twice.close()

    assert [set(verdicts) for verdicts, _ in settled] == [{Verdict.SETTLED}] * 4
    ordered = [item.id for _, orders in settled for order in orders for item in order.items]
    retried = [row.task_id for row, _ in rows if row.task_id % 3 == 0]
    assert sorted(ordered) == retried
    assert ledger_db.count(tables.task_result) == len(rows) - len(retried)
    assert sum(count.delta for count in ledger_db.rows(tables.tally) if count.state != 0) == 60


def test_the_port_relieves_and_quarantines_through_threads(
    ledger_db: LedgerDatabase, executors: Executors
) -> None:
    """Both calls return the orders that were written, in the ledger's own group."""
    ((row, owner),) = claimed(ledger_db, 1)
    ledger = sql_ledger(ledger_db, executors)
    stranger = RejectedRecord(
        topic_id="topic-id",
        topic="group.tasks",
        partition=2,
        offset=5,
        key=None,
        value=b"value",
        headers=[],
        reason="no headers of ours",
    )

    order = asyncio.run(ledger.relieve(ledger_db.record(row.task_id), row.fence, owner))
    orders = asyncio.run(ledger.quarantine([stranger]))

    assert order is not None
    assert [(placed.group, placed.destination) for placed in (order, *orders)] == [
        (GROUP, "tasks"),
        (GROUP, "dlq"),
    ]
    assert ledger_db.count(tables.outbox) == 2
