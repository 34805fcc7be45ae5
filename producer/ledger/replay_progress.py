"""Reads replay runs: what a person ordered, and how far it is.

A run's row keeps the counts of its items, so that no reader counts a million of them.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any

import orjson
from sqlalchemy import Connection, Row, Select, bindparam, select

from docllm.producer.ledger.dead_letters.selection import Selection, selection_of
from docllm.producer.ledger.outbox import QUARANTINE
from docllm.producer.limits import CAP
from docllm.schemas.ledger import agent_rows
from docllm.schemas.ledger.tables import agent, replay_item, replay_run
from docllm.schemas.task.line.overrides import Overrides

_VALUE_SHOWN = 60  # characters of a prompt or a schema


class ItemState(IntEnum):
    """The state of an item."""

    WAITS = 0
    REPLAYED = 1
    SKIPPED = 2  # skipped: the task had changed, or its batch is cancelled
    UNREAD = 3  # a record that still is no task


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A person's request for a replay.

    `rate` is items a second, None for no limit. `nonce` distinguishes two equal requests.
    `overrides` run in place of the fields of the tasks' lines. `refreshes`: whether the documents
    of the tasks may have changed.
    """

    selection: Selection
    cap: int = CAP
    rate: float | None = None
    nonce: str = ""
    overrides: Overrides = field(default_factory=dict)
    refreshes: bool = False

    @property
    def changes(self) -> list[str]:
        """The options that change what the tasks run with."""
        refreshing = ["--refresh-documents"] if self.refreshes else []
        return [*refreshing, *map(_option, self.overrides.items())]

    def __str__(self) -> str:
        return " ".join([str(self.selection), *self.changes])

    def as_text(self) -> str:
        """Return the stored form."""
        return orjson.dumps(
            {
                "select": self.selection.as_json(),
                "cap": self.cap,
                "rate": self.rate,
                "nonce": self.nonce,
                "overrides": self.overrides,
                "refreshes": self.refreshes,
            }
        ).decode()


def _option(override: tuple[str, Any]) -> str:
    """Return a changed field as an option, with the beginning of its value."""
    name, value = override
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    cut = text if len(text) <= _VALUE_SHOWN else f"{text[:_VALUE_SHOWN]}..."
    return f"--{name} {shlex.quote(cut)}"


@dataclass(frozen=True, slots=True)
class ReplayRun:
    """A run as it is stored.

    Times are UTC without a zone. `counts` has how many items are in each state.
    """

    id: int
    actor: str
    request: ReplayRequest
    created_at: datetime
    ended_at: datetime | None
    counts: dict[ItemState, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """How many items the run has."""
        return sum(self.counts.values())

    @property
    def left(self) -> int:
        """How many items wait for their turn."""
        return self.counts.get(ItemState.WAITS, 0)

    @property
    def done(self) -> int:
        """How many items are finished."""
        return self.total - self.left


def _stored_runs(group: str | Any) -> Select[Any]:
    return select(replay_run).where(
        replay_run.c.group_name == group, replay_run.c.stored_at.is_not(None)
    )


_UNFINISHED = (  # built once, because every agent runs this query each second
    _stored_runs(bindparam("of_group"))
    .where(replay_run.c.ended_at.is_(None))
    .order_by(replay_run.c.id)
)


_RUN = select(replay_run).where(replay_run.c.id == bindparam("run_id"))
_ALIVE = (
    select(agent.c.id)
    .where(agent.c.group_name == bindparam("of_group"), agent_rows.alive())
    .limit(1)
)


def unfinished(connection: Connection, group: str) -> list[ReplayRun]:
    """Return the stored runs that have not ended, the oldest first."""
    return [_run(row) for row in connection.execute(_UNFINISHED, {"of_group": group})]


def any_unfinished(connection: Connection, group: str) -> bool:
    """Return whether a stored run has not ended."""
    return connection.execute(_UNFINISHED.limit(1), {"of_group": group}).first() is not None


def latest(connection: Connection, group: str, limit: int) -> list[ReplayRun]:
    """Return the newest stored runs, the newest first."""
    newest = _stored_runs(group).order_by(replay_run.c.id.desc()).limit(limit)
    return [_run(row) for row in connection.execute(newest)]


def find(connection: Connection, run_id: int) -> ReplayRun | None:
    """Return a run with its counts, None if it does not exist."""
    row = connection.execute(_RUN, {"run_id": run_id}).first()
    return None if row is None else _run(row)


def unread(connection: Connection, run_id: int, limit: int) -> Sequence[tuple[int, str]]:
    """Return the first records of a run that are still no tasks, with the reason."""
    query = (
        select(replay_item.c.item_id, replay_item.c.reason)
        .where(
            replay_item.c.run_id == run_id,
            replay_item.c.kind == QUARANTINE,
            replay_item.c.state == int(ItemState.UNREAD),
        )
        .order_by(replay_item.c.item_id)
        .limit(limit)
    )
    return [(row.item_id, row.reason) for row in connection.execute(query)]


def as_json(run: ReplayRun) -> dict[str, Any]:
    """Return the form of an unfinished run for `--json`."""
    selection = str(run.request)
    counts = {"done": run.done, "total": run.total, "rate_per_s": run.request.rate}
    return {"id": run.id, "actor": run.actor, "selection": selection} | counts


def any_agent(connection: Connection, group: str) -> bool:
    """Return whether an agent of the group, or a repair agent, is alive and applies stored runs."""
    return connection.execute(_ALIVE, {"of_group": group}).first() is not None


def _run(row: Row[Any]) -> ReplayRun:
    request = orjson.loads(row.selection)
    read = ReplayRequest(
        selection_of(request["select"]),
        request["cap"],
        request["rate"],
        request["nonce"],
        request["overrides"],
        request["refreshes"],
    )
    counts = {
        ItemState.REPLAYED: row.replayed,
        ItemState.SKIPPED: row.skipped,
        ItemState.UNREAD: row.unread,
    }
    counts[ItemState.WAITS] = row.total - sum(counts.values())
    return ReplayRun(
        row.id,
        row.actor,
        read,
        row.created_at,
        row.ended_at,
        {state: count for state, count in counts.items() if count},
    )
