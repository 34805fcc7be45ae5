"""The state of a run: unfinished work, and how often its promises were in danger."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

from docllm.schemas.settings.config import DEFAULT_ROUTE
from docllm.schemas.task.record.topics import Topics
from tests.invariants.evidence import Position
from tests.simulation.broker import Broker
from tests.simulation.machine import BATCH, GROUP

if TYPE_CHECKING:
    from tests.simulation.world import World


def unfinished(world: "World") -> str:
    """Return the unfinished work; empty once everything has ended."""
    open_ids = {task_id for (task_id,) in world.store.rows("SELECT id FROM task WHERE status < 3")}
    open_tasks = len(open_ids - stopped(world)) if open_ids else 0
    orders = world.store.rows("SELECT count(*) FROM outbox")[0][0]
    lag = sum(
        position.high - max(position.low, position.committed or 0)
        for position in positions(world.broker)
    )
    ahead = sum(group.ahead() for group in world.broker.groups.values())
    working = [program.name for program in (world.loader, *world.others) if program.running]
    working += ["load"] if world.loader.killed else []  # it will be started again
    sending = sum(process is None or process.alive for process in world.broker.sending)
    replays = world.store.rows(
        "SELECT count(*) FROM replay_run WHERE stored_at IS NOT NULL AND ended_at IS NULL"
    )[0][0]
    hooks = world.store.rows("SELECT count(*) FROM hook WHERE state < 2")[0][0]
    if open_tasks or orders or lag or ahead or working or sending or replays or hooks:
        return (
            f"{open_tasks} tasks open, {orders} orders, lag {lag}, {ahead} committed too "
            f"far, {sending} sending, {replays} replays, {hooks} hooks, {working}"
        )
    return ""


def untold(world: "World") -> bool:
    """Return whether the batch has ended, and its hook was not called since, nor given up.

    A join that waits for a replay keeps the batch open.
    """
    if not world.machine.hooks or stopped(world):
        return False
    sql = "SELECT closed_at IS NOT NULL OR cancelled_at IS NOT NULL FROM batch WHERE name=?"
    closed = world.store.rows(sql, BATCH)
    sql = "SELECT count(*) FROM hook WHERE state=2 AND event='batch_done'"
    if not closed or not closed[0][0] or world.store.rows(sql)[0][0]:
        return False
    last_end = world.store.rows(
        "SELECT coalesce(max(turn), 0) FROM sim_move m JOIN task t ON t.id=m.task_id "
        "JOIN batch b ON b.id=t.batch_id WHERE m.status>=3 AND m.old_status<3 AND b.name=?",
        BATCH,
    )[0][0]
    told = max((turn for turn, _ in world.machine.ends_told), default=0)
    return bool(last_end > told)


def stopped(world: "World") -> set[int]:
    """Return the joins that wait for the replay of a dead sibling, by the checker's own rule."""
    rows = world.store.rows(_STOPPED)
    return {task_id for (task_id,) in rows}


def positions(broker: Broker) -> Iterator[Position]:
    """Yield the positions of the groups on the topics that agents read."""
    topics = Topics(GROUP)
    for name, topic in broker.topics.items():
        if not name.endswith((".dlq", ".results")):
            group = broker.group(topics.consumer_group(topics.destination(name)))
            for number, log in enumerate(topic.logs):
                yield Position(name, number, log.low, log.end, group.committed.get((name, number)))


_STOPPED = """
SELECT t.id FROM task t
JOIN follow_up f ON f.parent_id = t.parent_id
JOIN task s ON s.id = f.task_id AND s.join_role < 2
WHERE t.join_role = 2 AND t.status = 0 AND t.due_at > '9999'
GROUP BY t.id
HAVING sum(s.status < 3) = 0 AND sum(s.status > 3) > 0
"""
_SEEN = {
    "late settle": (
        "SELECT count(*) FROM sim_move WHERE old_status=0 AND old_owner<>0 AND status>=3"
    ),
    "reap": "SELECT count(*) FROM sim_move WHERE losses>0 AND status=0",
    "process ended": (
        "SELECT count(*) FROM task_attempt WHERE error_text LIKE '%its process ended%'"
    ),
    "join": "SELECT count(*) FROM task WHERE join_role > 1 AND status = 3",
    "follow-up": "SELECT count(*) FROM task WHERE parent_id > 0",
    "retry": "SELECT count(*) FROM task_attempt WHERE outcome='retry'",
    "moved": "SELECT count(*) FROM sim_move WHERE status=2 AND fence>old_fence AND attempts=0",
    "moved by a closed route": (
        "SELECT coalesce(sum(delta), 0) FROM sim_count WHERE outcome='ROUTE'"
    ),
    "snoozed": "SELECT count(*) FROM task_attempt WHERE outcome='snooze'",
    "succeeded": "SELECT count(*) FROM sim_move WHERE status=3",
    "cancelled": "SELECT count(*) FROM sim_move WHERE status=5 AND old_status<>5",
    "replayed": "SELECT count(*) FROM sim_move WHERE replays>0",
    "released": "SELECT count(*) FROM sim_move WHERE status=0 AND owner=0 AND old_owner<>0",
    "swept": "SELECT count(*) FROM sim_move WHERE status=old_status AND status IN (0, 2)",
    "redriven": "SELECT count(*) FROM replay_run WHERE actor='dead letters written back'",
    "quarantined": "SELECT count(*) FROM quarantine",
    "quarantine replayed": "SELECT count(*) FROM quarantine WHERE replayed_at IS NOT NULL",
    "lost agent": "SELECT count(*) FROM sim_lost WHERE lost_at IS NOT NULL",
    "guard raised": "SELECT count(*) FROM sim_guard WHERE raised",
    "guard for refusals": "SELECT count(*) FROM sim_guard WHERE raised AND cause='bad_request'",
    "tried in a look": "SELECT count(*) FROM sim_look",
}


def seen(world: "World") -> Counter[str]:
    """Return the events of a run: a promise that was never in danger is not proved."""
    counts = Counter({name: world.store.rows(sql)[0][0] for name, sql in _SEEN.items()})
    for disposition, number in world.store.rows(
        "SELECT disposition, sum(delta) FROM sim_count WHERE state=4 AND delta>0 GROUP BY 1"
    ):
        counts[f"dead, {disposition}"] += number
    calls = Counter(call.name for call in world.llm.calls)
    counts["call"] = calls.total()
    counts["repeated call"] = calls.total() - len(calls)
    counts["call into an outage"] = sum(
        outage.from_s <= call.at_s < outage.to_s and outage.route == call.route
        for call in world.llm.calls
        for outage in world.outages
    )
    counts["call on a fallback"] = _on_fallbacks(world)
    fences = [use.fence for use in world.machine.lock_uses]
    counts["lock"] = len(set(fences))
    counts["use within a limit"] = len(world.machine.uses)
    counts["hook"] = len(world.machine.hooks_run)
    counts["end of a batch told"] = len(world.machine.ends_told)
    counts["second end told"] = sum(number > 1 for _, number in world.machine.ends_told)
    counts["lock lost in use"] = len(set(fences)) * 2 - len(fences)
    for taking in world.turns.takings:
        counts["lanes in turn"] += len({kind.lane for kind in taking.waiting}) > 1
        counts["tenants in turn"] += len({kind.tenant for kind in taking.waiting}) > 1
    for agent in world.agents:
        counts["superseded"] += agent.counts.superseded
    return counts


def _on_fallbacks(world: "World") -> int:
    """Return how many calls of tasks ran on another route than the task's own."""
    models = {line.key: line.task.model or DEFAULT_ROUTE for line in (*world.lines, *world.inbox)}
    keys = ((unquote(call.name.rpartition("/")[2]), call.route) for call in world.llm.calls)
    return sum(models.get(key, route) != route for key, route in keys)
