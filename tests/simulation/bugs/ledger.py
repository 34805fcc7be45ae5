"""Bugs of claims, settles and replays in the ledger."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from sqlalchemy import bindparam, update

from docllm.agent.ledger.claims import claiming
from docllm.agent.ledger.settlements import follow_ups, settling, state_changes
from docllm.agent.maintenance.repair.replayer import Replayer
from docllm.agent.ports.outcome import Dead, Retry
from docllm.producer.ledger import outbox, quarantine, store
from docllm.producer.ledger.outbox import TASK
from docllm.producer.ports import Item
from docllm.producer.replay import runs, tasks
from docllm.schemas.ledger.sql import utc_after, utc_now
from docllm.schemas.ledger.tables import replay_run, task
from docllm.schemas.task.states import Status
from tests.simulation.bugs.bug import Bug, patched, replaced
from tests.simulation.bugs.stages import CONTESTED, FAMILIES, REPLAYS, ZOMBIES
from tests.simulation.machine import GROUP


def _any_owner_settles(connection: Any, settlements: Sequence[Any]) -> list[Any]:
    ids = [settlement.row.task_id for settlement in settlements]
    rows = {row.id: row for row in connection.execute(task.select().where(task.c.id.in_(ids)))}
    return [
        settlement
        for settlement in settlements
        if rows[settlement.row.task_id].status in {Status.PROCESSING, Status.PENDING}
    ]


def _reaped_settled_by_anyone(connection: Any, settlements: Sequence[Any]) -> list[Any]:
    ids = [settlement.row.task_id for settlement in settlements]
    rows = {row.id: row for row in connection.execute(task.select().where(task.c.id.in_(ids)))}
    pairs = [(settlement, rows[settlement.row.task_id]) for settlement in settlements]
    return [
        settlement
        for settlement, row in pairs
        if row.status == Status.PENDING
        or (row.status == Status.PROCESSING and row.owner == settlement.owner)
    ]


def _claiming(*where: Any) -> Any:
    values = {
        "status": 1,
        "owner": bindparam("by_owner"),
        "due_at": utc_after(bindparam("claim_s")),
    }
    return (
        update(task).where(task.c.id.in_(bindparam("ids", expanding=True)), *where).values(**values)
    )


_FENCE, _DUE = task.c.fence <= bindparam("at_fence"), task.c.due_at <= utc_now()
_ONE = update(task).where(task.c.id == bindparam("of_task"))


def _retry(**values: Any) -> Any:
    usual = {
        "status": 2,
        "owner": 0,
        "lease_losses": 0,
        "fence": task.c.fence + 1,
        "attempt": task.c.attempt + 1,
        "route": bindparam("by_route"),
        "carrier": bindparam("to_carrier"),
    }
    return _ONE.values(**usual | {"due_at": utc_after(bindparam("delay_s"))} | values)


def _retry_keeps_fence() -> AbstractContextManager[Any]:
    def orders(connection: Any, group: str, chosen: Any) -> list[Any]:
        placed = []
        for settlement, outcome in chosen:
            destination = (
                "dlq"
                if isinstance(outcome, Dead)
                else f"retry.{outcome.tier}"
                if isinstance(outcome, Retry)
                else None
            )
            fence = settlement.row.fence
            placed += (
                outbox.place(
                    connection,
                    group,
                    destination,
                    [Item(TASK, settlement.row.task_id, fence)],
                )
                if destination
                else []
            )
        return placed

    stack = ExitStack()
    stack.enter_context(patched(state_changes, "_RETRY", _retry(fence=task.c.fence)))
    stack.enter_context(patched(settling, "_write_orders", orders))
    return stack


def _replay_keeps_fence() -> AbstractContextManager[Any]:
    to_pending = tasks._to_pending

    def same(connection: Any, group: str, request: Any, rows: Any) -> list[Any]:
        orders = to_pending(connection, group, request, rows)
        ids = [row.id for row in rows]
        connection.execute(update(task).where(task.c.id.in_(ids)).values(fence=task.c.fence - 1))
        for order in orders:
            outbox.shrink(
                connection,
                order,
                [Item(kind, task_id, fence - 1) for kind, task_id, fence in order.items],
            )
        return []

    return patched(tasks, "_to_pending", same)


def _replay_by_id_alone(row: Any, _items: Any, request: Any) -> bool:
    wanted = Status.CANCELLED if request.selection.cancelled else Status.DEAD
    return bool(row.status == wanted and row.replays < request.cap)


async def _applied_by_commands_alone(_self: Replayer) -> None:
    pass


def _ended_too_early(connection: Any, run_id: int) -> bool:
    run = replay_run.c.id == run_id
    connection.execute(update(replay_run).where(run).values(ended_at=utc_now()))
    return True


def _quarantine_without_letter() -> AbstractContextManager[Any]:
    keep = quarantine.keep

    def silent(*args: Any) -> list[Any]:
        with patched(outbox, "place", lambda *_args, **_options: []):
            return keep(*args)

    return patched(quarantine, "keep", silent)


def _superseded_settles_order() -> AbstractContextManager[Any]:
    accepted_of = settling._accepted

    def generous(connection: Any, group: Sequence[Any]) -> list[Any]:
        accepted = accepted_of(connection, group)
        superseded = [settlement for settlement in group if settlement not in accepted]
        first_id = store.take_ids(
            connection, 1 + sum(map(len, map(follow_ups.ordered, superseded)))
        )
        _, family = follow_ups.insert(connection, superseded, set(), first_id)
        follow_ups.complete(connection, GROUP, family)
        return accepted

    return patched(settling, "_accepted", generous)


BUGS = {
    "settle without owner": Bug("P2", replaced(settling, "_accepted", _any_owner_settles), ZOMBIES),
    "a reaped task is settled by anyone": Bug(
        "P2", replaced(settling, "_accepted", _reaped_settled_by_anyone), CONTESTED
    ),
    "claim takes the claimed": Bug(
        "P2", replaced(claiming, "_CLAIM", _claiming(task.c.status.in_((0, 1, 2)), _FENCE))
    ),
    "snooze keeps its owner": Bug(
        "P2",
        replaced(
            state_changes, "_SNOOZE", _ONE.values(status=0, due_at=utc_after(bindparam("delay_s")))
        ),
    ),
    "claim takes the final": Bug(
        "P1", replaced(claiming, "_CLAIM", _claiming(_FENCE, (task.c.status > 1) | _DUE))
    ),
    "claim before it is due": Bug(
        "P6", replaced(claiming, "_CLAIM", _claiming(task.c.status.in_((0, 2)), _FENCE))
    ),
    "a retry keeps losses": Bug(
        "P2", replaced(state_changes, "_RETRY", _retry(lease_losses=task.c.lease_losses)), ZOMBIES
    ),
    "a retry is due at once": Bug(
        "P6", replaced(state_changes, "_RETRY", _retry(due_at=utc_now()))
    ),
    "retry keeps the fence": Bug("P3", _retry_keeps_fence),
    "replay keeps the fence": Bug("P8", _replay_keeps_fence),
    "replay goes by id alone": Bug(
        "P8", replaced(tasks, "_is_unchanged", _replay_by_id_alone), REPLAYS
    ),
    "agents leave replays to their commands": Bug(
        "P1", replaced(Replayer, "apply", _applied_by_commands_alone)
    ),
    "a replay ends while items wait": Bug("P8", replaced(runs, "end", _ended_too_early), REPLAYS),
    "quarantined without a letter": Bug("P9", _quarantine_without_letter),
    "a superseded settle makes follow-ups": Bug("P1", _superseded_settles_order, FAMILIES),
}
