"""Planted bugs: each breaks one promise on purpose, so that its checker is known to see. They exist in tests only."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from sqlalchemy import bindparam, true, update

from agent import entries, lease, loop, offsets, settle
from agent.aside import Aside
from agent.entry import Entry, State
from agent.intake import Intake
from agent.ledger import adapter, claim, reap
from agent.ledger import lease as leases
from agent.ledger import settle as settles
from agent.outcome import Snooze
from agent.ports import Answer, Verdict
from producer import letters, outbox, store
from schemas.sql import utc_after, utc_now
from schemas.tables import agent, task
from schemas.task import Status


@dataclass(frozen=True, slots=True)
class Bug:
    """`promise` is the one whose checker must speak; `plant` breaks the product while it is entered."""

    promise: str
    plant: Callable[[], AbstractContextManager[Any]]
    seeds: tuple[int, ...] = ()  # known to show it


def _held_skipped() -> AbstractContextManager[Any]:
    answered = loop.Loop._answered

    def skip(self: loop.Loop, entry: Any, said: Answer, row: Any) -> None:
        answered(self, entry, Answer.DONE if said is Answer.HELD else said, row)

    return patch.object(loop.Loop, "_answered", skip)


def _early_skipped() -> AbstractContextManager[Any]:
    answered = loop.Loop._answered

    def skip(self: loop.Loop, entry: Any, said: Answer, row: Any) -> None:
        answered(self, entry, Answer.DONE if said is Answer.EARLY else said, row)

    return patch.object(loop.Loop, "_answered", skip)


def _any_owner_settles(connection: Any, settlements: Sequence[Any]) -> list[Any]:
    ids = [one.row.task_id for one in settlements]
    rows = {row.id: row for row in connection.execute(task.select().where(task.c.id.in_(ids)))}
    return [one for one in settlements if rows[one.row.task_id].status in {Status.PROCESSING, Status.PENDING}]


def _reaped_settled_by_anyone(connection: Any, settlements: Sequence[Any]) -> list[Any]:
    ids = [one.row.task_id for one in settlements]
    rows = {row.id: row for row in connection.execute(task.select().where(task.c.id.in_(ids)))}
    found = [(one, rows[one.row.task_id]) for one in settlements]
    return [one for one, row in found if row.status == Status.PENDING or (row.status == Status.PROCESSING and row.owner == one.owner)]


def _no_order(connection: Any, group: str, chosen: Any) -> list[Any]:
    return []


def _always_deleted() -> AbstractContextManager[Any]:
    shrink = outbox.shrink
    return patch.object(outbox, "shrink", lambda connection, order, left: shrink(connection, order, left[:0]))


def _no_recheck() -> AbstractContextManager[Any]:
    return patch.object(reap, "reset_orphans", lambda connection, group, ids: reap._reset(connection, group, ids, true()))


def _no_followers() -> AbstractContextManager[Any]:
    def arrive(self: entries.Entries, entry: Any, *, redelivered: bool) -> None:
        self.bodies_bytes += len(entry.value or b"")
        self._by_task[entry.task_id] = entry
        (self.ask if redelivered else self.ready)(entry)

    return patch.object(entries.Entries, "arrive", arrive)


def _followers_forgotten() -> AbstractContextManager[Any]:
    end = entries.Entries.end

    def forget(self: entries.Entries, entry: Any) -> None:
        entry.followers = []
        end(self, entry)

    return patch.object(entries.Entries, "end", forget)


def _new_token() -> AbstractContextManager[Any]:
    tokens = iter(range(1, 1 << 23))

    async def pages(self: Any, records: Any, owner: int, deadline_s: float) -> Any:
        return await self._pages(records, lambda c, page: claim.claim(c, page, owner + (next(tokens) << 8), deadline_s), self._database.run)

    return patch.object(adapter.SqlLedger, "claim", pages)


def _fenced_passes() -> AbstractContextManager[Any]:
    return patch.object(loop.Loop, "_fenced", lambda self, entry, _outcome: self._finish(entry))


def _snooze_passes() -> AbstractContextManager[Any]:
    settled = loop.Loop._settled

    def passes(self: loop.Loop, entry: Any, outcome: Any, verdict: Verdict) -> None:
        if isinstance(outcome, Snooze) and entry.partition in self._partitions:
            self._finish(entry)
        else:
            settled(self, entry, outcome, verdict)

    return patch.object(loop.Loop, "_settled", passes)


def _settled_before_the_ledger() -> AbstractContextManager[Any]:
    put = settle.Settler.put

    def early(self: settle.Settler, entry: Any, outcome: Any) -> None:
        put(self, entry, outcome)
        self._settled([(entry, outcome, Verdict.SETTLED)])

    return patch.object(settle.Settler, "put", early)


def _claim_early() -> AbstractContextManager[Any]:
    return patch.object(claim, "_CLAIM", _claiming(task.c.status.in_((0, 2)), task.c.fence <= bindparam("at_fence")))


def _claim_the_claimed() -> AbstractContextManager[Any]:
    return patch.object(claim, "_CLAIM", _claiming(task.c.status.in_((0, 1, 2)), task.c.fence <= bindparam("at_fence")))


def _claim_the_final() -> AbstractContextManager[Any]:
    due = task.c.due_at <= utc_now()
    return patch.object(claim, "_CLAIM", _claiming(task.c.fence <= bindparam("at_fence"), (task.c.status > 1) | due))


def _claiming(*where: Any) -> Any:
    values = {"status": 1, "owner": bindparam("by_owner"), "due_at": utc_after(bindparam("deadline_s"))}
    return update(task).where(task.c.id.in_(bindparam("ids", expanding=True)), *where).values(**values)


def _highest() -> AbstractContextManager[Any]:
    def finish(self: Any, offset: int) -> None:
        for older in [one for one in self._open if one <= offset]:
            del self._open[older]

    return patch.object(offsets.Tracker, "finish", finish)


def _always_fresh() -> AbstractContextManager[Any]:
    return patch.object(lease.Lease, "fresh", lambda _self, _now_s: True)


def _revived() -> AbstractContextManager[Any]:
    beat = update(agent).where(agent.c.id == bindparam("me")).values(seen_at=utc_now(), lost_at=None, notice=bindparam("notice_text"))
    return patch.object(leases, "_BEAT", beat)


def _no_amnesty() -> AbstractContextManager[Any]:
    def judge(connection: Any, agent_id: int) -> int:
        late = update(agent).where(agent.c.lost_at.is_(None), agent.c.stopped_at.is_(None), agent.c.seen_at < utc_after(-12))
        return int(connection.execute(late.values(lost_at=utc_now())).rowcount)

    return patch.object(leases, "judge_others", judge)


def _hasty_verdict() -> AbstractContextManager[Any]:
    return patch.object(leases, "DEAD_AFTER_S", 4.0)


def _load_without_order() -> AbstractContextManager[Any]:
    accept = store.accept

    def silent(*args: Any) -> Any:
        with patch.object(outbox, "place", lambda *_args, **_options: []):
            return accept(*args)

    return patch.object(store, "accept", silent)


def _intake_first() -> AbstractContextManager[Any]:
    take = Intake._take

    async def first(self: Intake, records: Sequence[Any]) -> None:
        for record in records:
            self._partitions.finish(record.partition, record.offset)
        self._partitions.flush()
        await take(self, records)

    return patch.object(Intake, "_take", first)


def _quarantine_unsaid() -> AbstractContextManager[Any]:
    async def forget(self: Aside) -> None:
        while self._suspects:
            _, record = self._suspects.popleft()
            self._partitions.finish(record.partition, record.offset)
            if isinstance(record, Entry):
                self._entries.end(record)
        self._partitions.flush()

    return patch.object(Aside, "keep", forget)


def _fence_raised_at_reap() -> AbstractContextManager[Any]:
    def back(connection: Any, group: str, rows: Sequence[Any]) -> None:
        values = {"status": 0, "due_at": utc_now(), "lease_losses": task.c.lease_losses + 1, "fence": task.c.fence + 1}
        connection.execute(update(task).where(task.c.id.in_([row.id for row in rows])).values(**values))

    return patch.object(reap, "_return", back)


def _snooze_keeps_owner() -> AbstractContextManager[Any]:
    snooze = update(task).where(task.c.id == bindparam("one")).values(status=0, due_at=utc_after(bindparam("delay_s")))
    return patch.object(settles, "_SNOOZE", snooze)


def _letter_without_body() -> AbstractContextManager[Any]:
    write = letters.write

    def cut(*args: Any) -> Any:
        return {item: letters.pointer(record) if record.topic.endswith(".dlq") else record for item, record in write(*args).items()}

    return patch.object(letters, "write", cut)


def _running_forgotten() -> AbstractContextManager[Any]:
    drop = loop.Loop._drop

    def forget(self: Any, dropped: Any) -> None:
        gone = list(dropped)
        for entry in gone:
            if entry.state is State.CLAIMING:
                entry.state = State.HELD
        drop(self, gone)

    return patch.object(loop.Loop, "_drop", forget)


BUGS = {
    "held is skipped": Bug("P3", _held_skipped),
    "early is skipped": Bug("P3", _early_skipped),
    "settle without owner": Bug("P2", lambda: patch.object(settles, "_accepted", _any_owner_settles)),
    "a reaped task is settled by anyone": Bug("P2", lambda: patch.object(settles, "_accepted", _reaped_settled_by_anyone)),
    "settled without an order": Bug("P8", lambda: patch.object(settles, "_write_orders", _no_order)),
    "order deleted whatever the report": Bug("P1", _always_deleted),
    "load without an order": Bug("P1", _load_without_order),
    "reaper without a second look": Bug("P7", _no_recheck),
    "reap raises the fence": Bug("P1", _fence_raised_at_reap),
    "two records of one task in a claim": Bug("P4", _no_followers),
    "the second record of a task is forgotten": Bug("P1", _followers_forgotten),
    "new token when a claim is tried again": Bug("P7", _new_token),
    "fenced lets the offset pass": Bug("P3", _fenced_passes),
    "snooze lets the offset pass": Bug("P3", _snooze_passes),
    "the offset moves before the settle": Bug("P3", _settled_before_the_ledger),
    "the highest finished is committed": Bug("P3", _highest),
    "claim before it is due": Bug("P6", _claim_early),
    "claim takes the claimed": Bug("P2", _claim_the_claimed),
    "claim takes the final": Bug("P1", _claim_the_final),
    "every lease is fresh": Bug("P4", _always_fresh),
    "a lease is revived": Bug("P7", _revived),
    "verdict without amnesty": Bug("P7", _no_amnesty),
    "verdict after 4 s": Bug("P7", _hasty_verdict),
    "intake commits first": Bug("P3", _intake_first),
    "suspects are dropped": Bug("P3", _quarantine_unsaid),
    "snooze keeps its owner": Bug("P2", _snooze_keeps_owner),
    "letter without its body": Bug("P8", _letter_without_body),
    "a revoked claim is forgotten": Bug("P7", _running_forgotten),
}
