"""The topic of dead letters is deleted up to the first letter that somebody may still need."""

from collections.abc import AsyncGenerator, Sequence

from sqlalchemy import delete, insert

from docllm.producer.ledger import outbox
from docllm.producer.ports import Incoming, Item
from docllm.producer.publishing import record_builder
from docllm.producer.retention.dead_trim import TrimPlan, plan_trim
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.sql import utc_now
from docllm.schemas.task.record.topics import Topics
from tests.contract.batches.test_purge import archived, purged
from tests.contract.support.ledger_dead import dead, replayed, set_aside
from tests.support.ledger_database import BATCH, GROUP, LedgerDatabase


class Shelf:
    """A topic of one partition that holds these records."""

    def __init__(self, held: Sequence[Incoming]) -> None:
        self._held = held

    async def read(self, topic: str) -> AsyncGenerator[Sequence[Incoming], None]:
        for record in self._held:
            yield [record]


def letters(ledger_db: LedgerDatabase, *items: Item) -> list[Incoming]:
    """Return the letters of these tasks or records as their topic has them."""
    orders = ledger_db.call(outbox.place, GROUP, "dlq", items)
    records = ledger_db.call(record_builder.records_of, Topics(GROUP), orders[0], 0.0)
    ledger_db.run(lambda c: c.execute(delete(tables.outbox)))
    return [
        Incoming(
            partition=0, offset=place, key=record.key, value=record.value, headers=record.headers
        )
        for place, record in enumerate(records.values())
    ]


async def planned(ledger_db: LedgerDatabase, held: Sequence[Incoming]) -> TrimPlan:
    return await plan_trim(
        ledger_db.transactions,
        Shelf(held),
        group=GROUP,
        ledger_id=ledger_db.ledger_id,
        topic=f"{GROUP}.dlq",
        partitions=1,
    )


def of_tasks(ids: Sequence[int]) -> list[Item]:
    return [Item(outbox.TASK, task_id, 0) for task_id in ids]


async def test_it_ends_before_the_first_letter_that_is_needed(ledger_db: LedgerDatabase) -> None:
    """A replayed task needs no letter; the letters behind a needed one stay with it."""
    ids = dead(ledger_db, "a", "b", "c")
    held = letters(ledger_db, *of_tasks(ids))
    assert (await planned(ledger_db, held)).ends == {}
    replayed(ledger_db, key="a")
    replayed(ledger_db, key="c")

    plan = await planned(ledger_db, held)

    assert (plan.ends, plan.letters) == ({0: 1}, 1)
    assert plan.needed == {0: f"task {ids[1]} of batch {BATCH} at offset 1"}


async def test_letters_that_an_archive_has_may_go(ledger_db: LedgerDatabase) -> None:
    """The archive must be whole, and have the task as it died; a purge needs no letter either."""
    ids = dead(ledger_db, "a", "b")
    held = letters(ledger_db, *of_tasks(ids))
    row = {"batch_id": ledger_db.batch().id}
    ledger_db.run(lambda c: c.execute(insert(tables.archive).values(**row)))
    assert (await planned(ledger_db, held)).letters == 0
    archived(ledger_db)
    ledger_db.ago(tables.archive.c.created_at, 60)
    assert (await planned(ledger_db, held)).letters == 0
    archived(ledger_db)
    assert (await planned(ledger_db, held)).letters == 2

    ledger_db.set(tables.batch, ledger_db.batch().id, closed_at=utc_now())
    await purged(ledger_db)

    assert ledger_db.count(tables.task) == 0
    assert (await planned(ledger_db, held)).letters == 2


async def test_what_nobody_may_have_back_may_go(ledger_db: LedgerDatabase) -> None:
    """The letter of a task whose input was deleted goes too."""
    ids = dead(ledger_db, "a")
    held = letters(ledger_db, *of_tasks(ids))
    ledger_db.run(lambda c: c.execute(delete(tables.task_input)))

    assert (await planned(ledger_db, held)).letters == 1


async def test_other_records_stay(ledger_db: LedgerDatabase) -> None:
    """A quarantined record stays until it is a task; what is not of this ledger stays for ever."""
    (number,) = set_aside(ledger_db, b"garbage")
    held = letters(ledger_db, Item(outbox.QUARANTINE, number, 0))
    stranger = Incoming(
        partition=0, offset=1, key=None, value=b"x", headers=[("docllm-quarantine", b"%d" % number)]
    )
    assert (await planned(ledger_db, held)).needed == {0: f"quarantine:{number} at offset 0"}

    ledger_db.set(tables.quarantine, number, replayed_at=utc_now())

    plan = await planned(ledger_db, [*held, stranger])
    assert (plan.ends, "no letter of this ledger" in plan.needed[0]) == ({0: 1}, True)
    (task_id,) = dead(ledger_db, "a")
    letter = letters(ledger_db, *of_tasks([task_id]))[0]
    replayed(ledger_db, key="a")
    headers = [
        (name, b"0" * 32 if name == "docllm-ledger" else value) for name, value in letter.headers
    ]
    other = Incoming(partition=0, offset=0, key=letter.key, value=letter.value, headers=headers)
    assert (await planned(ledger_db, [other])).letters == 0
    assert (await planned(ledger_db, [letter])).letters == 1
