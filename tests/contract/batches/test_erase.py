"""An erasure leaves nothing of a person in the ledger, and all counts as they were."""

from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest
from sqlalchemy import insert, update

from docllm.agent.ports import ClaimAnswer
from docllm.producer.ledger import outbox
from docllm.producer.ledger.outbox import TASK
from docllm.producer.ledger.retention import erasure_rows
from docllm.producer.ledger.retention.erasure_rows import Erased, Subject
from docllm.producer.ledger.status import group_sums
from docllm.producer.ports import Item
from docllm.producer.publishing import record_builder
from docllm.producer.retention.erasure import CHECK_EVERY_S, WAIT_S, Erasure
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.sql import utc_now
from docllm.schemas.task.record.topics import Topics
from docllm.schemas.task.result.codec import POINTER
from docllm.schemas.task.result.output_pointer import OutputPointer
from docllm.schemas.task.states import Status
from tests.contract.claims.test_follow_ups import follow_up, ordering
from tests.contract.support.ledger_dead import dead, killed, set_aside
from tests.support.clock import HandClock
from tests.support.ledger_database import (
    BATCH,
    GROUP,
    RETRY,
    SUCCEEDED,
    LedgerDatabase,
    new_task,
)

MARK = "Zebediah"  # in everything that is stored of the person
TENANT = Subject(tenant=MARK)


async def erased(ledger_db: LedgerDatabase, subject: Subject, clock: HandClock) -> Erased:
    batches = ledger_db.call(erasure_rows.batches, GROUP, subject)
    erasure = Erasure(
        transactions=ledger_db.transactions, clock=clock, group=GROUP, subject=subject
    )
    return await erasure.run(batches, actor="ann", tasks=1)


def load(ledger_db: LedgerDatabase, key: str, tenant: str = MARK) -> int:
    task = replace(new_task(key, b"about " + MARK.encode()), tenant=tenant)
    (task_id,) = ledger_db.accept([task], ledger_db.batch()).new.values()
    return task_id


def stored_texts(ledger_db: LedgerDatabase, *without: str) -> str:
    """Return all that the ledger stores, as text."""
    return "\n".join(
        f"{table.name}: {row!r}"
        for table in tables.metadata.tables.values()
        if table.name not in without
        for row in ledger_db.rows(table)
    )


async def test_nothing_of_a_tenant_stays_but_counts(ledger_db: LedgerDatabase) -> None:
    """The tenant's tasks of all states end; only the counts still know of them."""
    succeeded, died, retried, waits = (load(ledger_db, f"{MARK}-{name}") for name in "abcd")
    other = load(ledger_db, "other", "someone")
    killed(ledger_db, succeeded, replace(SUCCEEDED, body=MARK.encode()))
    failure = RETRY.failure
    for task_id in (died, retried):
        killed(ledger_db, task_id, replace(RETRY, failure=replace(failure, text=MARK, reply=MARK)))
    ledger_db.set(tables.task, died, status=int(Status.DEAD))
    letter = {"task_id": died, "fence": 1, "fingerprint": bytes(16), "error_text": MARK}
    ledger_db.run(lambda c: c.execute(insert(tables.dead_letter).values(tenant=MARK, **letter)))
    hook = {"group_name": GROUP, "task_id": waits, "batch_id": 1, "error_text": MARK}
    ledger_db.run(lambda c: c.execute(insert(tables.hook).values(**hook)))
    row = {"batch_id": ledger_db.batch().id, "type": "document", "route": "r", "reason": MARK}
    ledger_db.run(lambda c: c.execute(insert(tables.guard).values(group_name=GROUP, **row)))
    line = orjson.dumps({"id": "x", "tenant": MARK})
    set_aside(ledger_db, line, b"{" + MARK.encode(), b"other")
    before = ledger_db.call(group_sums.read_sums, GROUP, str)

    done = await erased(ledger_db, TENANT, HandClock())

    assert (done.tasks, done.records, len(done.unread), done.running) == (4, 1, 1, [])
    texts = stored_texts(ledger_db, "tally", "tally_sum", "failure_group", "quarantine")
    assert MARK not in texts.replace(repr(ledger_db.task(other)), "").replace(
        repr(next(row for row in ledger_db.rows(tables.task_input))), ""
    )
    assert [row.task_id for row in ledger_db.rows(tables.task_input)] == [other]
    assert [row.record_value for row in ledger_db.rows(tables.quarantine)] == [
        None,
        b"{" + MARK.encode(),
        b"other",
    ]
    after = ledger_db.call(group_sums.read_sums, GROUP, str)
    assert (after.loaded, after.attempts, after.cost_micro) == (
        before.loaded,
        before.attempts,
        before.cost_micro,
    )
    assert [ledger_db.status(task_id) for task_id in (retried, waits)] == [Status.CANCELLED] * 2
    assert ledger_db.status(other) is Status.PENDING
    assert [row.reason for row in ledger_db.rows(tables.guard)] == [erasure_rows.REASON]
    (row,) = [row for row in ledger_db.rows(tables.audit) if row.action == "erase"]
    assert MARK not in repr(row)
    assert (await erased(ledger_db, TENANT, HandClock())).tasks == 0


async def test_a_late_record_of_an_erased_task_is_done(ledger_db: LedgerDatabase) -> None:
    """The record's digest fits, so it is not quarantined with the very text that was erased."""
    task_id = load(ledger_db, MARK)
    digest = ledger_db.task(task_id).digest

    await erased(ledger_db, Subject(key=MARK), HandClock())

    record = ledger_db.record(task_id, stamp=digest)
    owner = ledger_db.agent().next_owner()
    assert ledger_db.answers([record], owner)[task_id][0] is ClaimAnswer.DONE
    assert ledger_db.task(task_id).task_key.startswith(erasure_rows.ERASED)


async def test_a_letter_of_an_erased_task_is_not_sent(ledger_db: LedgerDatabase) -> None:
    """An order for it that waits finds no input, and is dropped."""
    (task_id,) = dead(ledger_db, MARK)
    (order,) = ledger_db.call(outbox.place, GROUP, "dlq", [Item(TASK, task_id, 0)])

    await erased(ledger_db, Subject(key=MARK), HandClock())

    assert ledger_db.call(record_builder.records_of, Topics(GROUP), order, 0.0) == {}


async def test_a_line_is_known_while_another_dead_task_has_it(ledger_db: LedgerDatabase) -> None:
    """The same line died in two batches: the erasure of one leaves the line of the other."""
    for name in (BATCH, "elsewhere"):
        (newest,) = dead(ledger_db, MARK, into=name)

    await erased(ledger_db, Subject(key=MARK, batch=BATCH), HandClock())
    assert [row.task_id for row in ledger_db.rows(tables.dead_line)] == [newest]

    await erased(ledger_db, Subject(key=MARK), HandClock())
    assert ledger_db.rows(tables.dead_line) == []


async def test_what_a_task_ordered_goes_with_it(ledger_db: LedgerDatabase) -> None:
    """A task's follow-ups hold the person's data too; other tasks stay, also in other batches."""
    parent, other = load(ledger_db, MARK), load(ledger_db, "other")
    killed(ledger_db, parent, ordering(follow_up("child")))
    ledger_db.load(MARK, into="elsewhere")

    done = await erased(ledger_db, Subject(key=MARK, batch=BATCH), HandClock())

    assert done.tasks == 2
    keys = {bytes(row.task_key) for row in ledger_db.rows(tables.task)}
    assert {key for key in keys if not key.startswith(erasure_rows.ERASED)} == {
        b"other",
        MARK.encode(),
    }
    assert ledger_db.status(other) is Status.PENDING


async def test_results_outside_of_the_ledger_are_named(ledger_db: LedgerDatabase) -> None:
    """A person has to delete them: the object of the result, and that which its line names."""
    task_id = load(ledger_db, MARK)
    pointer = OutputPointer(uri="s3://bucket/a", size=1, sha256="00", codec=0, start=0)
    killed(ledger_db, task_id, SUCCEEDED)
    of_task = update(tables.task_result).values(codec=POINTER, body=pointer.stored())
    ledger_db.run(lambda c: c.execute(of_task))
    line = orjson.dumps({"id": MARK, "prompt": "Hi", "output_uri": "s3://bucket/own"})
    ledger_db.run(lambda c: c.execute(update(tables.task_input).values(body=line)))

    outputs = (await erased(ledger_db, Subject(key=MARK), HandClock())).outputs

    assert outputs == ["s3://bucket/a", "s3://bucket/own"]


async def test_a_task_that_runs_is_waited_for(ledger_db: LedgerDatabase) -> None:
    """A running task keeps its data until it ends; then it is erased, or is said to run still."""
    task_id = load(ledger_db, MARK)
    owner = ledger_db.agent().next_owner()
    row = ledger_db.claimed(task_id, owner)
    clock = HandClock()
    began_s = clock.at_s

    done = await erased(ledger_db, TENANT, clock)
    assert (done.tasks, done.running) == (0, [task_id])
    assert clock.at_s - began_s == pytest.approx(WAIT_S, abs=2.0)

    class Settling(HandClock):
        async def sleep(self, delay_s: float) -> None:
            await super().sleep(delay_s)
            if ledger_db.status(task_id) is Status.PROCESSING and delay_s == 1.0:
                ledger_db.settle(row, owner, RETRY)

    done = await erased(ledger_db, TENANT, Settling())
    assert (done.tasks, done.running) == (1, [])
    assert ledger_db.status(task_id) is Status.CANCELLED


class Meanwhile(HandClock):
    """A clock by which something happens in the first second that the erasure waits."""

    def __init__(self, happen: Callable[[], object]) -> None:
        super().__init__()
        self._happen: Callable[[], object] | None = happen

    async def sleep(self, delay_s: float) -> None:
        await super().sleep(delay_s)
        if delay_s == CHECK_EVERY_S and self._happen:
            self._happen()
            self._happen = None


@pytest.mark.parametrize("subject", [TENANT, Subject(key=MARK)])
async def test_what_a_running_task_orders_goes_with_it(
    ledger_db: LedgerDatabase, subject: Subject
) -> None:
    """The task orders another one as it ends, after the erasure has read which tasks there are."""
    parent = load(ledger_db, MARK)
    owner = ledger_db.agent().next_owner()
    row = ledger_db.claimed(parent, owner)
    child = replace(follow_up("child", MARK.encode()), tenant=MARK)

    done = await erased(
        ledger_db, subject, Meanwhile(lambda: ledger_db.settle(row, owner, ordering(child)))
    )

    assert (done.tasks, done.running) == (2, [])
    assert ledger_db.count(tables.task_input) == 0
    assert {bytes(row.task_key)[:7] for row in ledger_db.rows(tables.task)} == {erasure_rows.ERASED}


async def test_a_task_leads_to_those_that_still_run(ledger_db: LedgerDatabase) -> None:
    """The task is erased after what it ordered, so the same command finds all of it again."""
    parent = load(ledger_db, MARK)
    killed(ledger_db, parent, ordering(follow_up("child")))
    child = max(row.id for row in ledger_db.rows(tables.task))
    owner = ledger_db.agent().next_owner()
    row = ledger_db.claimed(child, owner)

    done = await erased(ledger_db, Subject(key=MARK), HandClock())
    assert (done.tasks, done.running) == (0, [parent, child])
    ledger_db.settle(row, owner, SUCCEEDED)

    assert (await erased(ledger_db, Subject(key=MARK), HandClock())).tasks == 2


@pytest.mark.parametrize("subject", [TENANT, Subject(key=MARK)], ids=["tenant", "id"])
async def test_locks_and_reports_that_name_the_subject_go(
    ledger_db: LedgerDatabase, subject: Subject
) -> None:
    """Locks that a running attempt uses stay, and so do those of others."""
    runs = load(ledger_db, "runs", "someone")
    ledger_db.set(tables.task, runs, status=int(Status.PROCESSING), owner=7)
    for name, task_id, owner in (
        (f"by {MARK}", 0, 0),
        (f"ended {MARK}", runs, 6),
        (f"held {MARK}", runs, 7),
        ("other%", 0, 0),
    ):
        row = {"group_name": GROUP, "name": name, "task_id": task_id, "owner": owner}
        for table in (tables.resource_lock, tables.lock_wait):
            if table is tables.resource_lock or "by" not in name:
                ledger_db.run(lambda c, t=table, r=row: c.execute(insert(t).values(**r)))  # type: ignore[misc]
    said = orjson.dumps({"oldest": f"task {MARK} of batch b"}).decode()
    ended, runs_on = (ledger_db.agent().agent_id for _ in range(2))
    for agent_id in (ended, runs_on):
        ledger_db.set(tables.agent, agent_id, report=said)
    ledger_db.set(tables.agent, ended, stopped_at=utc_now())

    await erased(ledger_db, subject, HandClock())

    left = {row.name for row in ledger_db.rows(tables.resource_lock)}
    assert left == {f"held {MARK}", "other%"}
    assert {row.name for row in ledger_db.rows(tables.lock_wait)} == left
    reports = {row.id: row.report for row in ledger_db.rows(tables.agent)}
    assert reports == {ended: None, runs_on: said}
