"""Claims, queries without a claim (`ask`), releases and head-of-line relief, as SQL.

Every statement names the state it expects; zero rows is an answer.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import orjson
from sqlalchemy import Connection, and_, bindparam, func, select, true, update

from docllm.agent.ports import SUSPECT_LOSSES, Claimable, ClaimAnswer, ClaimAnswers, Row
from docllm.agent.ports.outcome import HandlerState
from docllm.producer.ledger import batch_options, outbox, task_changes
from docllm.producer.ports import Order
from docllm.schemas.ledger.by_ids import execute_by_ids
from docllm.schemas.ledger.sql import seconds_until, utc_after, utc_now
from docllm.schemas.ledger.tables import batch, task, task_input, task_state
from docllm.schemas.runtime import crash
from docllm.schemas.task.record.lanes import known_lane
from docllm.schemas.task.states import FINAL, TRANSITIONS, WAITING, Status

PAGE = 500
# A record may be ahead of a ledger that lost its last transactions, but not by this much.
FENCE_LEAP = 1000
ANY_LOSSES = 1 << 15

_CLAIM = (
    update(task)
    .where(
        task.c.id.in_(bindparam("ids", expanding=True)),
        task.c.status.in_(TRANSITIONS["claim"].sources),
        task.c.fence <= bindparam("at_fence"),
        task.c.due_at <= utc_now(),
        task.c.lease_losses < bindparam("below_losses"),
    )
    .values(
        status=int(Status.PROCESSING),
        owner=bindparam("by_owner"),
        due_at=utc_after(bindparam("claim_s")),
        claimed_at=utc_now(),
    )
)
# What most rows of a page have in common, in the order of the fields of `Row`. A row brings it as
# one text, because each column of each row costs; equal texts are read once.
_COMMON = func.json_array(
    task.c.batch_id,
    task.c.status,
    task.c.owner,
    task.c.fence,
    task.c.attempt,
    task.c.max_attempts,
    task.c.lease_losses,
    seconds_until(task.c.due_at),
    task.c.expires_at < utc_now(),
    task.c.type,
    batch.c.name,
    batch.c.cancelled_at.is_not(None),
    task.c.tenant,
    batch.c.options,
    task.c.lane,
    task.c.depth,
    task.c.changed,
    task.c.join_role,
    task.c.losses,
)
_READ = (
    select(task.c.id, task.c.task_key, task.c.digest, _COMMON.label("common"))
    .join(batch, batch.c.id == task.c.batch_id)
    .where(task.c.id.in_(bindparam("ids", expanding=True)))
)
_STATE = select(task_state.c.state, task_state.c.come_backs).where(
    task_state.c.task_id == bindparam("of_task")
)
_RELEASE = (
    update(task)
    .where(
        task.c.id.in_(bindparam("ids", expanding=True)),
        task.c.owner == bindparam("by_owner"),
        task.c.status.in_(TRANSITIONS["release"].sources),
    )
    .values(status=int(Status.PENDING), owner=0, due_at=utc_now())
)


def ask(connection: Connection, records: Sequence[Claimable]) -> ClaimAnswers:
    """Answer for records that may be waiting, without a lock."""
    return _answers(connection, records, owner=0)


def claim(
    connection: Connection,
    records: Sequence[Claimable],
    owner: int,
    claim_s: float,
    *,
    with_suspects: bool = False,
) -> ClaimAnswers:
    """Claim tasks under `owner` and answer for every record.

    After a lost answer it may be run again with the same owner. Without `with_suspects`, a task
    over which agents were lost at least twice is not claimed, and its answer is AGAIN.
    """
    below_losses = ANY_LOSSES if with_suspects else SUSPECT_LOSSES
    of_fence: defaultdict[int, list[int]] = defaultdict(list)
    for record in records:
        of_fence[record.publication.fence].append(record.publication.task_id)
    for fence, ids in sorted(of_fence.items()):
        execute_by_ids(
            connection,
            _CLAIM,
            ids,
            at_fence=fence,
            by_owner=owner,
            claim_s=claim_s,
            below_losses=below_losses,
        )
        crash.reach("claim.fence_claimed")
    return _answers(connection, records, owner)


def bodies(connection: Connection, task_ids: Iterable[int]) -> dict[int, tuple[bytes, bytes]]:
    """Return key and value of tasks whose records were kept without bodies."""
    query = (
        select(task.c.id, task.c.task_key, task_input.c.body)
        .join(task_input, task_input.c.task_id == task.c.id)
        .where(task.c.id.in_(sorted(task_ids)))
    )
    return {row.id: (row.task_key, row.body) for row in connection.execute(query)}


def handler_state(connection: Connection, task_id: int) -> HandlerState | None:
    """Return what the handler of a task kept when it came back the last time, if it did."""
    row = connection.execute(_STATE, {"of_task": task_id}).one_or_none()
    return None if row is None else HandlerState(bytes(row.state), row.come_backs)


def release(connection: Connection, owner: int, task_ids: Iterable[int]) -> None:
    """Give claims back; count nothing and publish nothing.

    Claims that no longer belong to this owner are left alone.
    """
    execute_by_ids(connection, _RELEASE, list(task_ids), by_owner=owner)


def relieve(
    connection: Connection, group: str, record: Claimable, fence: int, owner: int | None
) -> Order | None:
    """Order a replacement record for a task, so that the original record may be finished.

    The task must run under `owner`, or wait (`owner` None). Returns None if the claim is no longer
    ours, the task does not wait at this fence, or the record's value differs from the task's.
    """
    task_id = record.publication.task_id
    is_claimable = task.c.status.in_(WAITING)
    if owner is not None:
        is_claimable = and_(task.c.owner == owner, task.c.status == int(Status.PROCESSING))
    is_same_value = true() if record.digest is None else task.c.digest == record.digest
    unchanged = select(task.c.id, task.c.fence, task.c.lane).where(
        task.c.id == task_id, task.c.fence == fence, is_claimable, is_same_value
    )
    row = connection.execute(unchanged.with_for_update()).one_or_none()
    if row is None:
        return None
    connection.execute(update(task).where(task.c.id == task_id).values(carrier=outbox.LANE_CARRIER))
    return outbox.place_in_lanes(connection, group, [row])[0]


def archived(connection: Connection, names: Iterable[str]) -> set[str]:
    """Return the names of the given batches that are archived.

    The tasks of an archived batch are done and have no rows any more.
    """
    query = select(batch.c.name).where(
        batch.c.name.in_(sorted(set(names))), batch.c.archived_at.is_not(None)
    )
    return set(connection.execute(query).scalars())


def _answers(connection: Connection, records: Sequence[Claimable], owner: int) -> ClaimAnswers:
    ids = [record.publication.task_id for record in records]
    rows = {
        task_id: (_row(task_id, key, common), digest)
        for task_id, key, digest, common in execute_by_ids(connection, _READ, ids)
    }
    answers: ClaimAnswers = {}
    missing = []
    for task_id, record in zip(ids, records, strict=True):
        if task_id not in rows:
            missing.append(record)
            continue
        row, digest = rows[task_id]
        answers[task_id] = (answer(record, row, digest, owner=owner), row)
    if missing:
        archived_names = archived(connection, (record.publication.batch for record in missing))
        for record in missing:
            is_done = record.publication.batch in archived_names
            unlisted = ClaimAnswer.DONE if is_done else ClaimAnswer.UNKNOWN
            answers[record.publication.task_id] = (unlisted, None)
    _answer_conflicts(connection, records, answers, owner)
    return answers


def _answer_conflicts(
    connection: Connection, records: Sequence[Claimable], answers: ClaimAnswers, owner: int
) -> None:
    """Release tasks that this call claimed through foreign records, which must not hold a task.

    A record from before a replay that changed its task's line is not foreign, but stale.
    """
    conflicting = {
        task_id: row
        for task_id, (claim_answer, row) in answers.items()
        if claim_answer is ClaimAnswer.CONFLICT and row is not None
    }
    if not conflicting:
        return
    changed = [task_id for task_id, row in conflicting.items() if row.changed]
    former = task_changes.former_digests(connection, changed) if changed else {}
    for record in records if former else ():
        task_id, fence = record.publication.task_id, record.publication.fence
        if any(fence < since and record.digest == old for since, old in former.get(task_id, ())):
            answers[task_id] = (ClaimAnswer.STALE, conflicting.pop(task_id))
    claimed = [task_id for task_id, row in conflicting.items() if owner and row.owner == owner]
    if claimed:
        crash.reach("claim.conflicting")
        release(connection, owner, claimed)


def answer(record: Claimable, row: Row, digest: bytes, *, owner: int) -> ClaimAnswer:
    """Return the answer for a record of our ledger and group, from the row that was read back.

    `owner` is the owner number of the claim call; it is 0 for a query that claims nothing.
    """
    fence = record.publication.fence
    if (record.digest is not None and record.digest != digest) or fence > row.fence + FENCE_LEAP:
        return ClaimAnswer.CONFLICT
    if row.status == Status.PROCESSING:
        return _processing(row, fence, owner)
    if row.status in FINAL:
        return ClaimAnswer.DONE
    if row.fence > fence:
        return ClaimAnswer.STALE
    if row.due_in_s > 0:
        return ClaimAnswer.EARLY
    return ClaimAnswer.AGAIN if owner else ClaimAnswer.CLAIMABLE


def _processing(row: Row, fence: int, owner: int) -> ClaimAnswer:
    if owner and row.owner == owner:
        return ClaimAnswer.CLAIMED
    return ClaimAnswer.STALE if row.fence > fence else ClaimAnswer.HELD


def _row(task_id: int, task_key: bytes, common: str) -> Row:
    return Row(task_id, task_key, *_common_fields(common))


@lru_cache(maxsize=1000)
def _common_fields(common: str) -> tuple[Any, ...]:
    """Return the fields that `_COMMON` has read, which many rows share."""
    (
        *numbers,  # those that `Row` has as they are
        due_in_s,
        expired,
        task_type,
        batch_name,
        cancelled,
        tenant,
        options,
        lane,
        depth,
        changed,
        join_role,
        losses,
    ) = orjson.loads(common)
    return (
        *numbers,
        float(due_in_s),
        bool(expired),
        sys.intern(task_type),
        sys.intern(batch_name),
        bool(cancelled),
        sys.intern(tenant),
        batch_options.routes_allowed(options),
        known_lane(lane),
        depth,
        bool(changed),
        join_role,
        batch_options.output_uri(options),
        losses,
    )
