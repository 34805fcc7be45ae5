"""Dead tasks and replays of them: short names for the first steps of those tests."""

import secrets
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import delete

from docllm.agent.ports.outcome import Dead, Failure, Outcome
from docllm.producer.ledger import quarantine, replay_progress
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.replay_progress import ItemState, ReplayRequest, ReplayRun
from docllm.producer.ledger.status import group_status
from docllm.producer.limits import CAP
from docllm.producer.ports import Item
from docllm.producer.replay import runs, tasks
from docllm.producer.replay.runs import Cursor, Page
from docllm.schemas.ledger import tables
from docllm.schemas.task.failures import Disposition, ErrorClass
from docllm.schemas.task.record.rejected_record import RejectedRecord
from tests.support.ledger_database import DEAD, GROUP, SPENT, LedgerDatabase

OTHER = Dead(Failure(ErrorClass.TOO_LONG, "9000 tokens are too many"), SPENT, Disposition.PERMANENT)
EXPIRED = Dead(Failure(ErrorClass.EXPIRED, "its deadline passed"), SPENT, Disposition.EXPIRED)


def killed(ledger_db: LedgerDatabase, task_id: int, outcome: Outcome = DEAD) -> None:
    """End a free task with this outcome."""
    owner = ledger_db.agent().next_owner()
    ledger_db.settle(
        ledger_db.claimed(task_id, owner, ledger_db.task(task_id).fence), owner, outcome
    )


def delivered(ledger_db: LedgerDatabase) -> None:
    """Drop every order, as after its delivery."""
    ledger_db.run(lambda c: c.execute(delete(tables.outbox)))


def dead(
    ledger_db: LedgerDatabase, *keys: str, into: str = "batch", outcome: Outcome = DEAD
) -> list[int]:
    """Load tasks that die at once and whose dead letters are delivered."""
    ids = ledger_db.load(*keys, into=into)
    for task_id in ids:
        killed(ledger_db, task_id, outcome)
    delivered(ledger_db)
    return ids


def set_dead(ledger_db: LedgerDatabase, task_id: int, **values: Any) -> None:
    """Change a dead task and the copy that its dead letter has."""
    ledger_db.set(tables.task, task_id, **values)
    ledger_db.set(tables.dead_letter, task_id, **values)


def set_aside(
    ledger_db: LedgerDatabase, *values: bytes | None, reason: str = "line is not JSON", **more: Any
) -> list[int]:
    """Quarantine records with these values; return their numbers."""
    first = ledger_db.count(tables.quarantine)
    headers = more.pop("headers", [])
    records = [
        RejectedRecord(
            topic_id="topic-id",
            topic="group.inbox",
            partition=0,
            offset=first + place,
            key=b"key",
            value=value,
            headers=headers,
            reason=reason,
            **more,
        )
        for place, value in enumerate(values)
    ]
    ledger_db.call(quarantine.keep, GROUP, records)
    delivered(ledger_db)
    return [row.id for row in ledger_db.rows(tables.quarantine)][first:]


def stored(
    ledger_db: LedgerDatabase, request: ReplayRequest, actor: str = "ann"
) -> ReplayRun | None:
    """Store the items that a request selects."""
    request = replace(request, nonce=secrets.token_hex(8))
    run_id = ledger_db.call(runs.begin, GROUP, actor, request)
    place: Cursor | None = Cursor()
    while place is not None:
        place = ledger_db.call(runs.store, GROUP, run_id, request, place)
    return ledger_db.call(replay_progress.find, run_id)


def request(**options: Any) -> ReplayRequest:
    cap = options.pop("cap", CAP)
    return ReplayRequest(Selection(**options), cap)


@dataclass
class Applied:
    """The result of applying a run."""

    counts: dict[ItemState, int]
    ended: bool
    items: list[Item] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)


def applied(ledger_db: LedgerDatabase, run: ReplayRun | None, size: int = 500) -> Applied:
    """Apply the tasks of a run to the end, page by page."""
    assert run is not None
    pages: list[Page] = []
    after = 0
    while (
        page := ledger_db.call(tasks.apply, GROUP, run.id, run.request, after, size)
    ) is not None:
        pages.append(page)
        after = page.last
    ended = ledger_db.call(runs.end, run.id)
    stored_run = ledger_db.call(replay_progress.find, run.id)
    assert stored_run is not None
    return Applied(
        stored_run.counts,
        ended,
        [item for page in pages for order in page.orders for item in order.items],
        pages,
    )


def replayed(ledger_db: LedgerDatabase, **options: Any) -> Applied:
    """Store and apply the items of a selection."""
    return applied(ledger_db, stored(ledger_db, request(**options)))


def counts(ledger_db: LedgerDatabase) -> dict[str, int]:
    """Return the counts that `status` shows for all batches, without zeros."""
    shown = ledger_db.call(group_status.read_group, GROUP).batches
    names = ("total", "pending", "processing", "retrying", "succeeded", "dead", "cancelled")
    sums = {name: sum(group.counts[name] for group in shown) for name in names}
    return {name: count for name, count in sums.items() if count}
