"""Committed offsets: which records they passed, and where they are after the end."""

from collections import defaultdict

from docllm.schemas.task.states import FINAL
from tests.invariants.evidence import Evidence
from tests.invariants.happened import Commit, Stored
from tests.invariants.history import History

Cursor = tuple[str, int]


def passed_open_work(run: Evidence) -> list[str]:
    """No record below a committed offset was open then, unless the ledger carried it."""
    if run.moves is None:
        return []
    history, records, passed = History(run), _by_place(run), defaultdict[Cursor, int](int)
    carriers = _by_task(run) if run.relief else {}
    odd = []
    for commit in sorted(run.commits, key=lambda commit: commit.order):
        place = (commit.topic, commit.number)
        for record in records[place][passed[place] : commit.offset]:
            wrong = (
                ""
                if _lost(record, commit) or _stood_in_for(record, carriers, passed, commit)
                else _open(record, history, commit)
            )
            if wrong:
                odd.append(
                    f"{commit.topic}/{commit.number} committed to {commit.offset}, past "
                    f"{record.offset}: {wrong}"
                )
        passed[place] = max(passed[place], commit.offset)
    return odd


def not_at_the_end(run: Evidence) -> list[str]:
    """After the end every partition is committed to its end, and nowhere beyond."""
    odd = [
        position
        for position in run.positions
        if position.high > position.low and position.committed != position.high
    ]
    odd += [
        position
        for position in run.positions
        if position.committed is not None and position.committed > position.high
    ]
    return [
        f"{position.topic}/{position.number}: committed {position.committed}, end {position.high}"
        for position in odd
    ]


def _open(record: Stored, history: History, commit: Commit) -> str:
    """Return why a record may not be passed; empty when it may."""
    if record.kept is not None and record.kept <= commit.order:
        return ""
    if record.task_id is None:
        known = record.known is not None and record.known <= commit.order
        return "" if known else "neither a task nor the quarantine has it"
    move = history.last(record.task_id, commit.order)
    if move is None:
        return "it names no task and is not in the quarantine"
    if (
        move.after in FINAL
        or move.fence > record.fence
        or history.ordered(record.task_id, record.fence, commit.order)
    ):
        return ""
    return f"task {record.task_id} is {move.after.name}, fence {move.fence}"


def _stood_in_for(
    record: Stored,
    carriers: dict[tuple[int, int], list[Stored]],
    passed: dict[Cursor, int],
    commit: Commit,
) -> bool:
    """Return whether relief ordered another record of the same task and fence.

    That record must be on its topic and not passed yet.
    """
    if record.task_id is None:
        return False
    others = carriers.get((record.task_id, record.fence), [])
    copies = [
        copy
        for copy in others
        if copy is not record and copy.order <= commit.order and not _lost(copy, commit)
    ]
    return any(copy.offset >= passed[copy.topic, copy.number] for copy in copies)


def _lost(record: Stored, commit: Commit) -> bool:
    return record.lost is not None and record.lost <= commit.order


def _by_place(run: Evidence) -> dict[Cursor, list[Stored]]:
    records: dict[Cursor, list[Stored]] = defaultdict(list)
    for record in sorted(run.records, key=lambda record: record.offset):
        records[record.topic, record.number].append(record)
    return records


def _by_task(run: Evidence) -> dict[tuple[int, int], list[Stored]]:
    records: dict[tuple[int, int], list[Stored]] = defaultdict(list)
    for record in run.records:
        if record.task_id is not None:
            records[record.task_id, record.fence].append(record)
    return records
