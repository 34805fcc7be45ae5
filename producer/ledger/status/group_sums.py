"""Sums of all that ever happened in a group, for counters that never fall. Read only.

Replays take tasks out of a final state again, and compaction moves rows. So only what tasks entered
is summed, over the roll-up and the rows that are not in it yet, in one statement.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection, case, func, select

from docllm.producer.ledger import tally
from docllm.schemas.ledger.query_plans import batches_of
from docllm.schemas.ledger.tables import batch
from docllm.schemas.task.failures import UNTRIED, Disposition, ErrorClass, TallyOutcome
from docllm.schemas.task.states import FINAL, Status

OTHER = "_other"  # what is outside a closed set of names
_CLASSES = frozenset(map(str, ErrorClass))
_DISPOSITIONS = frozenset(map(str, Disposition))
_NO_ATTEMPT = frozenset({*TallyOutcome, *UNTRIED})
_OUTCOME_BY_STATE = {
    Status.SUCCEEDED: "succeeded",
    Status.DEAD: "dead",
    Status.RETRYING: "retried",
    Status.PENDING: "snoozed",
    Status.PROCESSING: "snoozed",
    Status.CANCELLED: "cancelled",
}


@dataclass(frozen=True, slots=True)
class GroupSums:
    """What happened in a group since its first batch.

    - `ended` counts tasks that entered a final state; `final` those that are in it now. Of these,
      `kept` still have rows: a purge changes no count.
    - `dead` is by class and disposition.
    - `attempts` is by route, outcome and class; the class of a success is "".
    - `tokens` is by route and direction: `in`, of which `cached`, and `out`.
    - `cost_micro` is by route and outcome, in millionths of the currency.
    - `unpriced` counts by the same the calls whose cost is unknown.
    """

    loaded: int = 0
    replayed: int = 0
    ended: Counter[Status] = field(default_factory=Counter)
    final: Counter[Status] = field(default_factory=Counter)
    kept: Counter[Status] = field(default_factory=Counter)
    dead: Counter[tuple[str, str]] = field(default_factory=Counter)
    attempts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    tokens: Counter[tuple[str, str]] = field(default_factory=Counter)
    cost_micro: Counter[tuple[str, str]] = field(default_factory=Counter)
    unpriced: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def open(self) -> int:
        """How many tasks are not final."""
        return max(0, self.loaded - self.final.total())

    @property
    def abandoned(self) -> Counter[str]:
        """How many attempts were given back after a call, by route."""
        by_route: Counter[str] = Counter()
        for (route, _, error_class), count in self.attempts.items():
            if error_class == ErrorClass.RELEASED:
                by_route[route] += count
        return by_route


def read_sums(connection: Connection, group: str, route_name: Callable[[str], str]) -> GroupSums:
    """Return the sums of a group. `route_name` maps the routes of tasks to a closed set."""
    batches = batches_of(group)
    of_group = tally.counts(lambda column: [column["batch_id"].in_(batches)])
    keys = [of_group.c[name] for name in ("route", "state", "outcome", "disposition")]
    names = ("delta", "entered", "tokens_cached", *tally.SPENT)
    sums = [func.sum(of_group.c[name]).label(name) for name in names]
    purged = select(batch.c.id).where(batch.c.purged_at.is_not(None))
    kept = case((of_group.c.batch_id.in_(purged), 0), else_=of_group.c.delta)
    sums.append(func.sum(kept).label("kept"))
    loaded = replayed = 0
    group_sums = GroupSums()
    for row in connection.execute(select(*keys, *sums).group_by(*keys)):
        route, outcome, entered = route_name(row.route), row.outcome, int(row.entered)
        status = Status(row.state)
        error_class = outcome if outcome in _CLASSES else OTHER
        if outcome == TallyOutcome.LOADED:
            loaded += entered
        elif outcome == TallyOutcome.REPLAYED:
            replayed += entered
        elif outcome == TallyOutcome.SUCCEEDED:
            group_sums.attempts[route, _OUTCOME_BY_STATE[status], ""] += entered
        elif outcome not in _NO_ATTEMPT:
            group_sums.attempts[route, _OUTCOME_BY_STATE[status], error_class] += entered
        if status in FINAL:
            group_sums.ended[status] += entered
            group_sums.final[status] += int(row.delta)
            group_sums.kept[status] += int(row.kept)
        if status is Status.DEAD:
            is_disposition = row.disposition in _DISPOSITIONS
            group_sums.dead[error_class, row.disposition if is_disposition else OTHER] += entered
        group_sums.tokens[route, "in"] += int(row.tokens_in)
        group_sums.tokens[route, "cached"] += int(row.tokens_cached)
        group_sums.tokens[route, "out"] += int(row.tokens_out)
        group_sums.cost_micro[route, _OUTCOME_BY_STATE[status]] += int(row.cost_micro)
        group_sums.unpriced[route, _OUTCOME_BY_STATE[status]] += int(row.unpriced)
    return replace(group_sums, loaded=loaded, replayed=replayed)
