"""Bugs of counts: roll-up and rows together have a count twice, or not at all.

The last one is of a purge: its mark counts, because late records look for it.
"""

from contextlib import AbstractContextManager
from typing import Any

from docllm.agent.ledger.claims import claiming
from docllm.agent.ledger.counts import compaction, release_counts
from docllm.agent.ports.outcome import Dead, Retry, Snooze, Succeeded
from docllm.producer.ledger import tally
from docllm.schemas.ledger import tables
from tests.simulation.bugs.bug import Bug, patched, replaced
from tests.simulation.bugs.stages import PURGED, REPLAYS


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

    def without_route(changes: Any) -> dict[str, Any]:
        row = row_of(changes)
        return row | ({"route": ""} if row["delta"] < 0 else {})

    return patched(tally, "_row", without_route)


def _entered_falls() -> AbstractContextManager[Any]:
    columns = {**tally._RAW_COUNTS, "entered": tables.tally.c.delta}
    return patched(tally, "_RAW_COUNTS", columns)


def _snoozes_count(outcome: Any) -> bool:
    return isinstance(outcome, Succeeded | Retry | Dead | Snooze)


_failure = compaction._failure

BUGS = {
    "compaction deletes without adding": Bug("P1", replaced(compaction, "_add", _nothing_added)),
    "compaction adds without deleting": Bug(
        "P1", replaced(compaction, "compact", _nothing_deleted)
    ),
    "a replay stays in its group of failures": Bug(
        "P1", replaced(compaction, "_failure", _no_replay_in_groups), REPLAYS
    ),
    "a counter falls at a replay": Bug("P1", _entered_falls),
    "a replay is counted on another route": Bug("P1", _replay_without_route),
    "a snooze is an attempt of its release": Bug(
        "P1", replaced(release_counts, "_counts", _snoozes_count)
    ),
    "a release forgets its past minutes": Bug(
        "P1", replaced(release_counts, "_rolls", lambda _row: ())
    ),
    "a late record of a purged batch is foreign": Bug(
        "P4", replaced(claiming, "archived", lambda _connection, _names: set()), PURGED
    ),
}
