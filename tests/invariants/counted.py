"""What all counts of a run add up to: those that were written, and those that the ledger keeps.

The history of a run has each row of the tally as it was written. The ledger keeps them as rows, or
as sums of compaction.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from docllm.schemas.ledger.sql import LONG_AGO
from docllm.schemas.task.failures import UNTRIED
from docllm.schemas.task.states import Status

Query = Callable[[str], Iterable[Sequence[Any]]]
Numbers = Mapping[tuple[Any, ...], tuple[int, ...]]

COLUMNS = (
    "batch_id", "type", "route", "model", "tenant", "state", "outcome", "disposition", "delta",
    "tokens_in", "tokens_out", "tokens_cached", "cost_micro", "unsure_micro", "unpriced",
    "dead_attempts", "dead_tokens_in", "dead_tokens_out", "dead_cost_micro", "dead_unpriced",
)  # fmt: skip
_ENTERED = "CASE WHEN delta > 0 THEN delta ELSE 0 END"
_SPENT = {name: name for name in ("tokens_in", "tokens_out", "cost_micro")}
_SERIES = {"entered": _ENTERED} | _SPENT
_UNPRICED = {"unpriced": "unpriced"}


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums by key, as they were written and as the ledger keeps them.

    `balance` is the place of the number that says how many tasks are in a state. `rolled_up` is how
    many keys the roll-up has: none if compaction never came.
    """

    name: str
    written: Numbers
    kept: Numbers
    balance: int | None = None
    rolled_up: int = 0


@dataclass(frozen=True, slots=True)
class _RollUp:
    """A roll-up: its key, its sums as expressions of a row of the tally, and which rows it has."""

    name: str
    table: str
    keys: Sequence[str]
    sums: Mapping[str, str]
    of_tally: str = "1=1"
    of_table: str = "1=1"
    balance: int | None = None


_ROLL_UPS = (
    _RollUp(
        "counts",
        "tally_sum",
        ("batch_id", "type", "route", "model", "tenant", "state", "outcome", "disposition"),
        {"delta": "delta", "entered": _ENTERED, "tokens_cached": "tokens_cached"}
        | _SPENT
        | {"unsure_micro": "unsure_micro"}
        | _UNPRICED,
        balance=0,
    ),
    _RollUp(
        "groups of failures",
        "failure_group",
        ("batch_id", "type", "tenant", "route", "disposition"),
        {"dead": "delta", "entered": _ENTERED, "attempts": "dead_attempts"}
        | {name: f"dead_{name}" for name in _SPENT | _UNPRICED},
        of_tally=f"state={int(Status.DEAD)}",
        balance=0,
    ),
    _RollUp("minutes", "tally_series", ("route", "state", "outcome"), _SERIES, "1=1", "width_s=60"),
    _RollUp("hours", "tally_series", ("route", "state", "outcome"), _SERIES, "1=1", "width_s=3600"),
)


def sums(query: Query, history: str) -> list[Sums]:
    """Return the sums of all counts; `history` is the table of rows as they were written."""
    return [
        Sums(
            roll_up.name,
            _numbers(query, roll_up, _of_tally(roll_up, history)),
            _numbers(
                query, roll_up, f"{_of_roll_up(roll_up)} UNION ALL {_of_tally(roll_up, 'tally')}"
            ),
            roll_up.balance,
            len(_numbers(query, roll_up, _of_roll_up(roll_up))),
        )
        for roll_up in _ROLL_UPS
    ]


def _of_tally(roll_up: _RollUp, table: str) -> str:
    columns = [*roll_up.keys, *(f"{sql} AS {name}" for name, sql in roll_up.sums.items())]
    return f"SELECT {', '.join(columns)} FROM {table} WHERE {roll_up.of_tally}"  # noqa: S608 - constants


def _of_roll_up(roll_up: _RollUp) -> str:
    columns = ", ".join([*roll_up.keys, *roll_up.sums])
    return f"SELECT {columns} FROM {roll_up.table} WHERE {roll_up.of_table}"  # noqa: S608 - constants


def _numbers(query: Query, roll_up: _RollUp, source: str) -> Numbers:
    keys = ", ".join(roll_up.keys)
    added = ", ".join(f"SUM({name})" for name in roll_up.sums)
    grouped = f"SELECT {keys}, {added} FROM ({source}) AS source GROUP BY {keys}"  # noqa: S608
    size = len(roll_up.keys)
    rows = {tuple(row[:size]): tuple(map(int, row[size:])) for row in query(grouped)}
    return {key: numbers for key, numbers in rows.items() if any(numbers)}


_ENDS = ("succeeded", "failed")
_FAILED = (
    "SELECT count(*) FROM task_attempt "
    "WHERE outcome IN ('retry', 'dead') AND owner > 0 AND error_class NOT IN"
)


def of_releases(query: Query) -> Sums:
    """Return the attempts that succeeded, and that failed and counted, as agents wrote them.

    The ledger keeps them as counts of each release, in rows of the agents or added up. An attempt
    that nobody made, or whose end the reaper wrote, is of no release.
    """
    untried = ", ".join(f"'{error_class}'" for error_class in sorted(UNTRIED))
    of_agents = f"agent_id > 0 OR starts_at = '{LONG_AGO}'"
    written = [*query("SELECT count(*) FROM task_result"), *query(f"{_FAILED} ({untried})")]
    kept = query(f"SELECT SUM(succeeded), SUM(failed) FROM release_count WHERE {of_agents}")  # noqa: S608 - constants
    (sums,) = kept
    return Sums(
        "attempts of releases",
        {(name,): (int(row[0]),) for name, row in zip(_ENDS, written, strict=True)},
        {(name,): (int(count or 0),) for name, count in zip(_ENDS, sums, strict=True)},
    )
