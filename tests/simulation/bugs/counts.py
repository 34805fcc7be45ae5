"""Bugs of compaction: a roll-up and the tally together have a count twice, or not at all."""

from typing import Any

from agent.ledger import compaction
from tests.simulation.bugs.bug import Bug, replaced


def _nothing_added(_connection: Any, _rows: Any, _limits: Any) -> None:
    pass


def _nothing_deleted(connection: Any, limits: compaction.CompactionLimits) -> int:
    values = {"age_s": -limits.after_s, "page": limits.page}
    if rows := connection.execute(compaction._PAGE, values).all():
        compaction._add(connection, rows, limits)
    return 0


def _no_replay_in_groups(row: Any, key: Any, sample: int) -> dict[str, Any]:
    roll = _failure(row, key, sample)
    return roll | {"dead": max(0, roll["dead"])}


_failure = compaction._failure

BUGS = {
    "compaction deletes without adding": Bug("P1", replaced(compaction, "_add", _nothing_added)),
    "compaction adds without deleting": Bug(
        "P1", replaced(compaction, "compact", _nothing_deleted)
    ),
    "a replay stays in its group of failures": Bug(
        "P1", replaced(compaction, "_failure", _no_replay_in_groups)
    ),
}
