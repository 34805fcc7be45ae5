"""What agents and screens do with a ledger, each as one piece of work on one connection.

It is for a ledger that `filling` filled.

Tested by tests/contract/database/test_scale.py.
"""

from collections.abc import Mapping
from datetime import timedelta

from sqlalchemy import Connection, Select, select, update

from bench.filling import BATCHES, GROUP, TYPE, batch_name, fingerprint_of, key_of
from bench.reads import Work
from docllm.agent.judge import Tier
from docllm.agent.lease import Lease
from docllm.agent.ledger import open_work
from docllm.agent.ledger.claims import claiming
from docllm.agent.ledger.guards import looks
from docllm.agent.ledger.leases import leasing
from docllm.agent.ledger.recovery import reaping
from docllm.agent.ledger.settlements.settling import settle
from docllm.agent.ports import Claimable, Row, Settlement
from docllm.agent.ports.outcome import Spent, Succeeded
from docllm.producer.ledger import batch_ids, cancel
from docllm.producer.ledger.dead_letters import error_groups, selection_query
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.replay_progress import ReplayRequest
from docllm.producer.ledger.status import batch_status, batch_wait, group_status, progress
from docllm.producer.replay import plan, runs
from docllm.producer.replay.runs import Cursor
from docllm.schemas.ledger import migrations, tables
from docllm.schemas.ledger.sql import LONG_AGO_TIME, utc_now
from docllm.schemas.ledger.tables import task
from docllm.schemas.task.guard import Guard, GuardCause
from docllm.schemas.task.record.envelope import Publication
from docllm.schemas.task.result.codec import COMPLETION
from docllm.schemas.task.states import Status

CLAIMED = 500
_FINAL_BATCH = 1
_SPENT = Spent("model", 10, 5, 300, "trace", 1500)


def questions(dead_id: int) -> Mapping[str, Work]:
    """Return every piece of work by name; `dead_id` is a dead task of the last batch."""
    last = batch_name(BATCHES)
    guard, last_guard = _guard(_FINAL_BATCH), _guard(BATCHES)
    return {
        "ask 500": lambda c: claiming.ask(c, _records(c)),
        "claim 500": _claimed,
        "claim and settle 500": _settled,
        "orphans": lambda c: reaping.orphans(c, GROUP),
        "overdue": lambda c: reaping.overdue(c, GROUP),
        "open_tasks": lambda c: open_work.any_open_task(c, GROUP),
        "open_in, of a finished batch": lambda c: open_work.open_in(c, _FINAL_BATCH),
        "open_in, of the last batch": lambda c: open_work.open_in(c, BATCHES),
        "guard: any_waiting, nothing waits": lambda c: looks.any_waiting(c, guard),
        "guard: any_waiting": lambda c: looks.any_waiting(c, last_guard),
        "guard: running, nothing runs": lambda c: looks.running(c, guard),
        "guard: call_up_moved": lambda c: looks.call_up_moved(c, GROUP, last_guard),
        "cancel page, nothing waits": lambda c: _cancelled(c, _FINAL_BATCH),
        "cancel page, 500 wait": lambda c: _cancelled(c, BATCHES),
        "export start": lambda c: batch_ids.id_range(c, BATCHES),
        "status": lambda c: group_status.read_group(c, GROUP),
        "status --batch": lambda c: group_status.read_group(c, GROUP, last),
        "status: what ended in ten minutes": lambda c: batch_status.paces(c, _batches()),
        "wait": lambda c: batch_wait.read_progress(c, GROUP, last),
        "progress": lambda c: progress.read_totals(c, GROUP),
        "progress: waiting": lambda c: progress.waiting(c, GROUP),
        "any_dead": lambda c: error_groups.any_dead(c, GROUP),
        "dead list": lambda c: _listed(c, Selection()),
        "dead list --batch": lambda c: _listed(c, Selection(batch=last)),
        "dead list --fingerprint": lambda c: _listed(
            c, Selection(fingerprint=fingerprint_of(1).hex())
        ),
        "dead list --since 1h": lambda c: _listed(c, _last_hour(c)),
        "dead list --id": lambda c: _listed(c, Selection(key=key_of(dead_id).decode())),
        "replay --dry-run": lambda c: _planned(c, Selection()),
        "replay --dry-run --batch": lambda c: _planned(c, Selection(batch=last)),
        "replay --dry-run --limit 100": lambda c: _planned(c, Selection(limit=100)),
        "replay --dry-run --since 1h": lambda c: _planned(c, _last_hour(c)),
        "replay: store a page": lambda c: _stored(c, Selection()),
        "replay: store a page --since 2000": lambda c: _stored(c, Selection(since=LONG_AGO_TIME)),
    }


def _batches() -> Select[int]:
    return select(tables.batch.c.id).where(tables.batch.c.group_name == GROUP)


def _guard(batch_id: int) -> Guard:
    return Guard(
        id=1,
        batch_id=batch_id,
        batch=batch_name(batch_id),
        type=TYPE,
        route="route",
        cause=GuardCause.EXHAUSTED.value,
        reason="",
        raised_at=LONG_AGO_TIME,
        probe_due_in_s=0.0,
        open_age_s=None,
        look_at=LONG_AGO_TIME,
    )


def _last_hour(connection: Connection) -> Selection:
    return Selection(since=selection_query.now(connection) - timedelta(hours=1))


def _listed(connection: Connection, selection: Selection) -> object:
    return error_groups.listed(connection, GROUP, selection, examples=40)


def _planned(connection: Connection, selection: Selection) -> object:
    return plan.plan(connection, GROUP, ReplayRequest(selection))


def _stored(connection: Connection, selection: Selection) -> object:
    request = ReplayRequest(selection)
    run_id = runs.begin(connection, GROUP, "bench", request)
    return runs.store(connection, GROUP, run_id, request, Cursor())


def _cancelled(connection: Connection, batch_id: int) -> object:
    one = update(tables.batch).where(tables.batch.c.id == batch_id)
    connection.execute(one.values(cancelled_at=utc_now()))
    return cancel.cancel_page(connection, batch_id)


def _records(connection: Connection) -> list[Claimable]:
    """Return records of the first tasks that are due."""
    ledger_id = migrations.ledger_id(connection)
    due = select(task.c.id).where(task.c.status == int(Status.PENDING)).order_by(task.c.due_at)
    ids = connection.execute(due.limit(CLAIMED)).scalars()
    name = batch_name(BATCHES)
    return [Claimable(Publication(ledger_id, GROUP, name, number, 0), None) for number in ids]


def _owner(connection: Connection) -> int:
    return Lease(leasing.register(connection, "bench", GROUP, "1"), 0.0).next_owner()


def _claimed(connection: Connection, owner: int | None = None) -> list[Row]:
    answers = claiming.claim(connection, _records(connection), owner or _owner(connection), 600.0)
    return [row for _, row in answers.values() if row is not None]


def _settled(connection: Connection) -> object:
    owner = _owner(connection)
    outcome, origin = Succeeded(b"answer", COMPLETION, _SPENT), (f"{GROUP}.tasks", 0, 0, 0)
    ends = [Settlement(row, owner, outcome, "route", origin) for row in _claimed(connection, owner)]
    return settle(connection, GROUP, ends, 0.0, Tier("1h", 3600.0))
