"""Bugs of leases and of the reaper."""

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from sqlalchemy import bindparam, true, update

from agent import lease
from agent.ledger import lease as leases
from agent.ledger import reap
from schemas.sql import utc_after, utc_now
from schemas.tables import agent, task
from tests.simulation.bugs.bug import Bug, replaced


def _no_recheck(connection: Any, group: str, ids: Any) -> Any:
    return reap._reset(connection, group, ids, true())


def _fence_raised_at_reap(connection: Any, group: str, rows: Any) -> None:
    values = {"status": 0, "due_at": utc_now(), "lease_losses": task.c.lease_losses + 1, "fence": task.c.fence + 1}
    connection.execute(update(task).where(task.c.id.in_([row.id for row in rows])).values(**values))


_REVIVING = update(agent).where(agent.c.id == bindparam("me")).values(seen_at=utc_now(), lost_at=None, notice=bindparam("notice_text"))


def _no_amnesty(connection: Any, agent_id: int) -> int:
    late = update(agent).where(agent.c.lost_at.is_(None), agent.c.stopped_at.is_(None), agent.c.seen_at < utc_after(-12))
    return int(connection.execute(late.values(lost_at=utc_now())).rowcount)


def _swept_once() -> AbstractContextManager[Any]:
    orphans, seen = reap.orphans, set[int]()

    def once(connection: Any, group: str) -> list[int]:
        fresh = [task_id for task_id in orphans(connection, group) if task_id not in seen]
        seen.update(fresh)
        return fresh

    return patch.object(reap, "orphans", once)


BUGS = {
    "reaper without a second look": Bug("P7", replaced(reap, "reset_orphans", _no_recheck)),
    "reap raises the fence": Bug("P1", replaced(reap, "_return", _fence_raised_at_reap)),
    "what lost agents left is looked for once": Bug("P1", _swept_once),
    "every lease is fresh": Bug("P4", replaced(lease.Lease, "fresh", lambda _self, _now_s: True)),
    "a lease is revived": Bug("P7", replaced(leases, "_BEAT", _REVIVING)),
    "verdict without amnesty": Bug("P7", replaced(leases, "judge_others", _no_amnesty)),
    "verdict after 4 s": Bug("P7", replaced(leases, "DEAD_AFTER_S", 4.0)),
}
