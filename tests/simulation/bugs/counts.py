"""Bugs of compaction: a roll-up and the tally together have a count twice, or not at all."""

from contextlib import AbstractContextManager
from typing import Any

from agent.ledger import compaction
from producer.ledger import tally
from schemas.ledger import tables
from tests.simulation.bugs.bug import Bug, patched, replaced


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


def _replay_without_route() -> AbstractContextManager[Any]:
    row_of = tally._row

    def without_route(key: Any, changes: Any) -> dict[str, object]:
        row = row_of(key, changes)
        return row | ({"route": ""} if row["delta"] < 0 else {})  # type: ignore[operator]

    return patched(tally, "_row", without_route)


def _entered_falls() -> AbstractContextManager[Any]:
    columns = {**tally._RAW_COUNTS, "entered": tables.tally.c.delta}
    return patched(tally, "_RAW_COUNTS", columns)


_failure = compaction._failure

BUGS = {
    "compaction deletes without adding": Bug("P1", replaced(compaction, "_add", _nothing_added)),
    "compaction adds without deleting": Bug(
        "P1", replaced(compaction, "compact", _nothing_deleted)
    ),
    "a replay stays in its group of failures": Bug(
        "P1", replaced(compaction, "_failure", _no_replay_in_groups)
    ),
    "a counter falls at a replay": Bug("P1", _entered_falls),
    "a replay is counted on another route": Bug("P1", _replay_without_route),
}
