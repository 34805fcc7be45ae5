"""Bugs planted into the ledger's functions, for the shortest schedules that show them.

Each is a wrong statement or function, and one short schedule shows it on SQLite, MariaDB and MySQL.
Bugs that only some timings show are in `tests/simulation/bugs`. Most of these are planted there
too, because each net has a checker of its own, which proves nothing until it has found a bug.
`tests/README.md` says how to add one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sqlalchemy import bindparam, update

from docllm.agent.inflight.watermark import OffsetTracker
from docllm.agent.ledger.claims import claiming
from docllm.agent.ledger.recovery import reaping
from docllm.agent.ledger.settlements import settling, state_changes
from docllm.agent.ports import Settlement
from docllm.producer.ledger import outbox
from docllm.producer.ports import Item
from docllm.producer.publishing import record_builder
from docllm.producer.publishing.relay import Relay
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.sql import utc_after, utc_now
from docllm.schemas.task.record.envelope import Outgoing
from docllm.schemas.task.states import TRANSITIONS, WAITING, Status


def settle_without_owner(patch: pytest.MonkeyPatch) -> None:
    """Accept the outcome of any agent, whoever owns the claim now."""

    def accepted(connection: Any, settlements: Sequence[Settlement]) -> list[Settlement]:
        rows = {row.id: row for row in connection.execute(tables.task.select())}
        return [
            settlement
            for settlement in settlements
            if rows[settlement.row.task_id].status in TRANSITIONS["succeed"].sources
        ]

    patch.setattr(settling, "_accepted", accepted)


def late_settle_by_anyone(patch: pytest.MonkeyPatch) -> None:
    """Accept the outcome of a lost claim even if the task was claimed again and released."""

    def accepted(connection: Any, settlements: Sequence[Settlement]) -> list[Settlement]:
        rows = {row.id: row for row in connection.execute(tables.task.select())}
        owned = [
            settlement
            for settlement in settlements
            if rows[settlement.row.task_id].owner in {settlement.owner, 0}
        ]
        return [
            settlement
            for settlement in owned
            if rows[settlement.row.task_id].status in TRANSITIONS["succeed"].sources
        ]

    patch.setattr(settling, "_accepted", accepted)


def reap_without_recheck(patch: pytest.MonkeyPatch) -> None:
    """Reset tasks without a second look, although they may be settled by now."""

    def anyway(connection: Any, ids: Sequence[int], _reason: object) -> Sequence[Any]:
        rows: Sequence[Any] = connection.execute(
            tables.task.select().where(tables.task.c.id.in_(ids))
        ).all()
        return rows

    patch.setattr(reaping, "_locked", anyway)


def commit_the_highest(patch: pytest.MonkeyPatch) -> None:
    """Commit the highest finished offset instead of the lowest unfinished one."""

    def finish(tracker: OffsetTracker, offset: int) -> None:
        tracker._open.pop(offset, None)
        tracker.watermark = max(offset + 1, tracker.watermark or 0)

    patch.setattr(OffsetTracker, "finish_offset", finish)


def delete_before_report(patch: pytest.MonkeyPatch) -> None:
    """Delete publish orders before the bus has reported that their records arrived."""

    async def deliver(relay: Relay, records: dict[Item, Outgoing]) -> dict[Item, object]:
        await relay._try_once(records)
        return {}

    patch.setattr(Relay, "_deliver", deliver)


def no_outbox(patch: pytest.MonkeyPatch) -> None:
    """Settle without writing the publish order of the next attempt or dead letter."""
    patch.setattr(settling, "_write_orders", lambda *_: [])


def reap_raises_the_fence_only(patch: pytest.MonkeyPatch) -> None:
    """Raise the fence of a reaped task without an order for a record that carries it."""
    real = reaping._requeue

    def raised(connection: Any, group: str, rows: Sequence[Any]) -> None:
        real(connection, group, rows)
        ids = [row.id for row in rows]
        connection.execute(
            update(tables.task)
            .where(tables.task.c.id.in_(ids))
            .values(fence=tables.task.c.fence + 1)
        )

    patch.setattr(reaping, "_requeue", raised)


def claim_without_fence(patch: pytest.MonkeyPatch) -> None:
    """Claim a task by a record of an older publication."""
    table = tables.task
    free = (
        table.c.id.in_(bindparam("ids", expanding=True)),
        table.c.status.in_(WAITING),
        table.c.due_at <= utc_now(),
    )
    values = {
        "status": int(Status.PROCESSING),
        "owner": bindparam("by_owner"),
        "due_at": utc_after(bindparam("claim_s")),
    }
    patch.setattr(
        claiming, "_CLAIM", update(table).where(*free, bindparam("at_fence") >= 0).values(**values)
    )


def relay_without_recheck(patch: pytest.MonkeyPatch) -> None:
    """Publish the record of an order whose task has ended meanwhile."""
    patch.setattr(record_builder, "FINAL", ())


def retry_keeps_the_fence(patch: pytest.MonkeyPatch) -> None:
    """Retry a task without a new fence, so that its old record may claim it too."""
    kept = update(tables.task).where(tables.task.c.id == bindparam("of_task"))
    values = {
        "status": int(Status.RETRYING),
        "owner": 0,
        "attempt": tables.task.c.attempt + 1,
        "route": bindparam("by_route"),
        "carrier": bindparam("to_carrier"),
    }
    patch.setattr(
        state_changes, "_RETRY", kept.values(**values, due_at=utc_after(bindparam("delay_s")))
    )
    patch.setattr(outbox, "place", _with_old_fences(outbox.place))


def _with_old_fences(place: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def placed(
        connection: Any, group: str, destination: str, items: Sequence[Item], **rest: Any
    ) -> list[Any]:
        is_late = destination.startswith("retry")
        fences = [item._replace(fence=item.fence - is_late) for item in items]
        return place(connection, group, destination, fences, **rest)

    return placed


def dead_letters_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """Forget the dead letters of an order, as if they needed no record."""
    patch.setattr(record_builder, "_dead_letters", lambda *_: {})
