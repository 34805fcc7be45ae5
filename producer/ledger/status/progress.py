"""Reads how far a group's work is, and what open tasks wait for, at a cost that never grows.

A run is the difference of two totals. What was counted before the run began is not its work.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from sqlalchemy import Connection, Subquery, exists, func, select

from docllm.producer.ledger import guards, joins, outbox, store
from docllm.producer.ledger import tally as counts
from docllm.producer.ledger.claiming_agent import agent_in
from docllm.producer.ledger.status import agent_status, due_later, retries
from docllm.producer.ledger.status.retries import Retries, TiersOf, no_tiers
from docllm.producer.ledger.waiting_rows import LedgerWait
from docllm.schemas.ledger.query_plans import NOT_ARCHIVED, batches_of, first_due
from docllm.schemas.ledger.sql import seconds_until, utc_now
from docllm.schemas.ledger.tables import task
from docllm.schemas.ledger.tables import waiting as waiting_table
from docllm.schemas.task.failures import UNTRIED, TallyOutcome
from docllm.schemas.task.guard import Guard
from docllm.schemas.task.states import FINAL, Status

# Tasks of one state, over all groups, that are read row by row.
MAX_READ = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The counts of a group since its first load.

    `succeeded`, `dead` and `cancelled` count each task as often as it ended, because a replayed
    task ends again. `retried` counts failed attempts that were not the last of their task.
    `later` tasks wait for a next one, for a time, or were put off for more than a minute; the last
    of them is due in `later_left_s`.
    """

    open: int = 0
    succeeded: int = 0
    dead: int = 0
    cancelled: int = 0
    retried: int = 0
    cost_micro: int = 0
    dead_by_class: Mapping[str, int] = field(default_factory=dict)
    tokens_by_model: Mapping[str, int] = field(default_factory=dict)
    cost_by_model: Mapping[str, int] = field(default_factory=dict)  # in millionths, as `cost_micro`
    later: int = 0
    retries: str = ""  # when those that failed are tried again, in words
    later_left_s: float = field(default=0.0, compare=False)  # passes while nothing moves


@dataclass(frozen=True, slots=True)
class Waiting:
    """What the open tasks of a group wait for.

    `retrying` counts tasks that wait for their next attempt, the first of which is due in `due_s`
    seconds. `snoozed` counts those whose last attempt is not counted, as after a refused call, and
    `snoozed_due_s` is the time until the first of them is due. `in_ledger` says for what other
    tasks wait in the ledger. `running` counts the tasks that agents hold, by the agent's id;
    `names` has the living agents that take tasks.
    """

    guards: tuple[Guard, ...] = ()
    retrying: int = 0
    due_s: float | None = None
    snoozed: int = 0
    snoozed_due_s: float | None = None
    running: Mapping[int, int] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)
    half_loaded: tuple[str, ...] = ()
    orders: int = 0
    in_ledger: tuple[LedgerWait, ...] = ()


def read_totals(connection: Connection, group: str, tiers_of: TiersOf = no_tiers) -> Totals:
    """Return the totals of a group. Tasks are read only if some may wait for a next attempt."""
    batches = batches_of(group, NOT_ARCHIVED)
    of_group = counts.counts(lambda column: [column["batch_id"].in_(batches)])
    keys = (of_group.c.state, of_group.c.outcome, of_group.c.model)
    names = ("delta", "entered", "tokens_in", "tokens_out", "cost_micro")
    sums = (func.sum(of_group.c[name]).label(name) for name in names)
    rows = connection.execute(select(*keys, *sums).group_by(*keys)).all()
    ends, deaths = Counter[Status](), Counter[str]()
    tokens, costs = Counter[str](), Counter[str]()
    loaded = ended = retried = 0
    for row in rows:
        state = Status(row.state)
        tokens[row.model] += int(row.tokens_in) + int(row.tokens_out)
        costs[row.model] += int(row.cost_micro)
        if state in FINAL:
            ends[state] += int(row.entered)
            ended += int(row.delta)
            if state is Status.DEAD:
                deaths[row.outcome] += int(row.entered)
        elif row.outcome == TallyOutcome.LOADED:
            loaded += int(row.delta)
        elif state is Status.RETRYING and row.outcome not in UNTRIED:
            retried += int(row.delta)
    is_retrying = retried and loaded > ended
    waits = retries.read(connection, batches) if is_retrying else {}
    next_tries = Retries.of(chain.from_iterable(waits.values()), tiers_of)
    later = due_later.read(connection, group).values() if loaded > ended else ()
    retries_left_s = 0.0 if next_tries is None else next_tries.left_s
    return Totals(
        open=max(0, loaded - ended),
        succeeded=ends[Status.SUCCEEDED],
        dead=ends[Status.DEAD],
        cancelled=ends[Status.CANCELLED],
        retried=retried,
        cost_micro=sum(costs.values()),
        dead_by_class={name: count for name, count in deaths.items() if count},
        tokens_by_model={name: count for name, count in tokens.items() if count},
        cost_by_model={name: cost for name, cost in costs.items() if cost},
        later=(0 if next_tries is None else next_tries.tasks) + sum(due.tasks for due in later),
        retries="" if next_tries is None else next_tries.text,
        later_left_s=max(retries_left_s, *(due.left_s for due in later), 0.0),
    )


def waiting(connection: Connection, group: str) -> Waiting:
    """Return what the open tasks of a group wait for."""
    claims = first_due(Status.PROCESSING, MAX_READ)
    retrying, due_s = _count_and_first(connection, group, first_due(Status.RETRYING, MAX_READ))
    later = first_due(Status.PENDING, MAX_READ, task.c.due_at > utc_now())
    snoozed, snoozed_due_s = _count_and_first(connection, group, later)
    agent_id = agent_in(claims.c.owner)
    held = connection.execute(
        select(agent_id.label("agent"), func.count().label("n"))
        .where(claims.c.batch_id.in_(batches_of(group, NOT_ARCHIVED)))
        .group_by(agent_id)
    )
    agents = agent_status.read_agents(connection, group)
    return Waiting(
        guards=tuple(guards.raised(connection, group)),
        retrying=retrying,
        due_s=due_s,
        snoozed=snoozed,
        snoozed_due_s=snoozed_due_s,
        running={int(row.agent): row.n for row in held},
        names={agent.id: agent.name for agent in agents if agent.works},
        half_loaded=tuple(store.half_loaded(connection, group)),
        orders=outbox.waiting(connection, group).orders,
        in_ledger=tuple(joins.ledger_waits(connection, group)),
    )


def _count_and_first(
    connection: Connection, group: str, tasks: Subquery
) -> tuple[int, float | None]:
    """Return how many of the tasks are the group's, and in how many seconds the first is due."""
    count, due_s = connection.execute(
        select(func.count(), func.min(seconds_until(tasks.c.due_at))).where(
            tasks.c.batch_id.in_(batches_of(group, NOT_ARCHIVED)),
            ~exists().where(waiting_table.c.task_id == tasks.c.id),
        )
    ).one()
    return count, None if due_s is None else max(0.0, float(due_s))
