"""The promises as code: what must hold at each commit, and what a run must have come to when it is over."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.lease import OWNER_BITS
from agent.ledger.lease import DEAD_AFTER_S
from producer import outbox
from schemas.envelope import NotOursError, Publication, decode
from schemas.task import FINAL, Status
from tests.simulation.broker import Group, Place, Stored
from tests.simulation.eventloop import EPOCH_S
from tests.simulation.programs import TOPICS, AgentProgram
from tests.simulation.provider import Made
from tests.simulation.store import seconds

if TYPE_CHECKING:
    from tests.simulation.world import World

TICK_S = 0.01  # times in the database have milliseconds
_OPEN = "SELECT count(*) FROM task WHERE status < 3"


def unfinished(world: "World") -> str:
    """Return what is not done yet; empty when everything has ended."""
    open_tasks = world.store.rows(_OPEN)[0][0]
    orders = world.store.rows("SELECT count(*) FROM outbox")[0][0]
    lag = _lag(world)
    loading = not world.loader.task.done()
    if open_tasks or orders or lag or loading:
        return f"{open_tasks} tasks open, {orders} orders, lag {lag}{', loading' if loading else ''}"
    return ""


def _lag(world: "World") -> int:
    total = 0
    for destination in ("tasks", *TOPICS.tier_destinations, "inbox"):
        topic, group = TOPICS.name(destination), world.broker.group(TOPICS.consumer_group(destination))
        for number, log in enumerate(world.broker.topics[topic].logs):
            total += log.end - group.start((topic, number))[0]
    return total


_SEEN = {
    "late settle": "SELECT count(*) FROM sim_move WHERE old_status=0 AND old_owner<>0 AND status>=3",
    "reap": "SELECT count(*) FROM sim_move WHERE losses>0 AND status=0",
    "worker_lost": "SELECT count(*) FROM dead_letter WHERE disposition='worker_lost'",
    "dead": "SELECT count(*) FROM sim_move WHERE status=4",
    "succeeded": "SELECT count(*) FROM sim_move WHERE status=3",
    "cancelled": "SELECT count(*) FROM sim_move WHERE status=5",
    "released or snoozed": "SELECT count(*) FROM sim_move WHERE status=0 AND owner=0",
    "quarantined": "SELECT count(*) FROM quarantine",
    "lost agent": "SELECT count(*) FROM sim_verdict",
}


def seen(world: "World") -> Counter[str]:
    """Return what came to pass in a run: promises that were never in danger prove nothing."""
    found = Counter({name: world.store.rows(sql)[0][0] for name, sql in _SEEN.items()})
    calls = Counter(call.task_id for call in world.llm.calls)
    found["call"] = calls.total()
    found["repeated call"] = calls.total() - len(calls)
    for agent in world.agents:
        found["fenced"] += agent.counts.fenced
    return found


# ---- P3: at each commit


def commit(world: "World", group: Group, place: Place, offset: int) -> None:
    """P3: nothing below a committed offset is neither final nor carried by the ledger."""
    log, begin = world.broker.log(place), world.passed.get((group.name, place), 0)
    for number in range(begin, offset):
        stored = log.records[number]
        if not stored.lost and (wrong := _carried(world, place, number, stored)):
            world.problem("P3", f"{group.name} committed {place[0]}/{place[1]} to {offset}, past {number}: {wrong}")
    world.passed[group.name, place] = max(begin, offset)


def _carried(world: "World", place: Place, number: int, stored: Stored) -> str:
    """Return why a record may not be passed; empty when it may."""
    if _quarantined(world, place, number):
        return ""
    if place[0].endswith(".inbox"):
        body = world.store.rows("SELECT 1 FROM task_input WHERE body=?", stored.value)
        return "" if body else "neither task nor quarantine has it"
    try:
        return _unsettled(world, place, number, decode(stored.headers))
    except NotOursError:
        return "a foreign record is not in quarantine"


def _unsettled(world: "World", place: Place, number: int, publication: Publication) -> str:
    task_id, fence = publication.task_id, publication.fence
    rows = world.store.rows("SELECT status, fence FROM task WHERE id=?", task_id)
    if not rows:
        return "it names no task and is not in quarantine"
    status, newest = rows[0]
    relieved = world.plan.narrow and _elsewhere(world, place, number, task_id, fence)
    if status in FINAL or newest > fence or _ordered(world, task_id, fence) or relieved:
        return ""
    return f"task {task_id} is {Status(status).name}, fence {newest}"


def _quarantined(world: "World", place: Place, number: int) -> bool:
    topic_id = world.broker.topics[place[0]].topic_id
    sql = "SELECT 1 FROM quarantine WHERE topic_id=? AND topic=? AND part=? AND record_offset=?"
    return bool(world.store.rows(sql, topic_id, place[0], place[1], number))


def _ordered(world: "World", task_id: int, fence: int) -> bool:
    blobs = world.store.rows("SELECT items FROM outbox WHERE destination<>'dlq'")
    return any((outbox.TASK, task_id, fence) in outbox.unpack(blob) for (blob,) in blobs)


def _elsewhere(world: "World", place: Place, number: int, task_id: int, fence: int) -> bool:
    """Relief finishes a record whose order put another one on the topic."""
    group = world.broker.group("g")
    for other, log in enumerate(world.broker.topics[place[0]].logs):
        there = (place[0], other)
        for offset in range(max(log.low, group.committed.get(there, 0)), log.end):
            stored = log.records[offset]
            if (there, offset) != (place, number) and not stored.lost and stored.headers:
                publication = decode(stored.headers)
                if (publication.task_id, publication.fence) == (task_id, fence):
                    return True
    return False


# ---- at the end


def check(world: "World") -> None:
    """Check every promise over the whole run."""
    for one in (_final_once, _moves, _loaded, _letters, _calls, _verdicts, _leaks):
        one(world)


def _final_once(world: "World") -> None:
    """P1: every task has one final state, and a result if and only if it succeeded."""
    rows = world.store.rows(
        "SELECT t.id, t.status, t.owner, (SELECT count(*) FROM task_result r WHERE r.task_id=t.id),"
        " (SELECT count(*) FROM dead_letter d WHERE d.task_id=t.id) FROM task t"
    )
    for task_id, status, owner, results, letters in rows:
        if status not in FINAL or owner:
            world.problem("P1", f"task {task_id} ended as {Status(status).name} of owner {owner}")
        if results != (status == Status.SUCCEEDED) or letters != (status == Status.DEAD):
            world.problem("P1", f"task {task_id} is {Status(status).name} with {results} results and {letters} letters")


def _loaded(world: "World") -> None:
    """P1: every line of the input is a task, once; none is missing unless its batch was cancelled."""
    keys = Counter(bytes(key).decode() for (key,) in world.store.rows("SELECT task_key FROM task"))
    wanted = {line.key for line in [*world.lines, *world.inbox]}
    if not world.cancelled and wanted - keys.keys():
        world.problem("P1", f"lines without a task: {sorted(wanted - keys.keys())}")
    if keys.keys() - wanted or any(number > 1 for number in keys.values()):
        world.problem("P1", f"tasks that nobody loaded, or twice: {sorted(keys.keys() - wanted)}, {keys.most_common(1)}")


@dataclass(frozen=True, slots=True)
class Move:
    """One change of a task's row, as the trigger wrote it."""

    at: str
    task_id: int
    old_status: int
    status: int
    old_owner: int
    owner: int
    old_fence: int
    fence: int
    old_due: str
    losses: int

    def __str__(self) -> str:
        before, after = Status(self.old_status).name, Status(self.status).name
        return f"task {self.task_id} at {self.at}: {before} of {self.old_owner} -> {after} of {self.owner}"

    @property
    def claims(self) -> bool:
        """Return whether somebody took the task."""
        return self.status == Status.PROCESSING and self.old_status != Status.PROCESSING

    @property
    def ends(self) -> bool:
        """Return whether a claim ended here: settled, released or cancelled."""
        return self.old_owner != 0 and self.owner == 0


def _moves(world: "World") -> None:
    """P1, P2, P6, P7 over the history of all rows: one end per claim, nothing early, nothing from a live lease."""
    gone = _gone(world)
    sql = "SELECT at, task_id, old_status, status, old_owner, owner, old_fence, fence, old_due, losses FROM sim_move ORDER BY seq"
    moves = [Move(*row) for row in world.store.rows(sql)]
    for move in moves:
        for promise, wrong in _wrongs(move, gone):
            world.problem(promise, f"{wrong}: {move}")
    ends = Counter((move.task_id, move.old_owner) for move, before in _with_before(moves) if move.ends and not _undone(move, before))
    for (task_id, owner), times in ends.items():
        if times > 1:
            world.problem("P2", f"task {task_id}: the claim of {owner} ended {times} times")
    written = world.store.rows("SELECT task_id, owner FROM task_result UNION SELECT task_id, owner FROM task_attempt WHERE owner<>0")
    for task_id, owner in written:
        if (task_id, owner) not in ends:
            world.problem("P2", f"task {task_id}: an end was written under {owner}, whose claim it was not")


def _with_before(moves: Sequence[Move]) -> Iterator[tuple[Move, Move | None]]:
    last: dict[int, Move] = {}
    for move in moves:
        yield move, last.get(move.task_id)
        last[move.task_id] = move


def _undone(move: Move, before: Move | None) -> bool:
    """Return whether a claim took its hand off in its own transaction, because the record was not the task's: it may be run again."""
    return before is not None and before.claims and before.at == move.at and move.status == Status.PENDING


def _wrongs(move: Move, gone: dict[int, str]) -> Iterator[tuple[str, str]]:
    if move.old_status in FINAL:
        yield "P1", "a final state was left"
    if move.fence < move.old_fence:
        yield "P1", "a fence fell"
    if move.claims and move.old_due > move.at:
        yield "P6", f"claimed before it was due, {move.old_due}"
    if move.losses > 0 and not _may_be_reaped(gone, move.at, move.old_owner, move.old_due):
        yield "P7", "reaped from a live lease"
    if move.old_status == Status.PROCESSING and move.old_owner and move.owner not in {0, move.old_owner}:
        yield "P2", "a claim was taken over without a reset"


def _may_be_reaped(gone: dict[int, str], at: str, owner: int, due: str) -> bool:
    agent_gone_at = gone.get(owner >> OWNER_BITS)
    return due < at or (agent_gone_at is not None and agent_gone_at <= at)


def _gone(world: "World") -> dict[int, str]:
    return dict(world.store.rows("SELECT id, coalesce(lost_at, stopped_at) FROM agent WHERE lost_at IS NOT NULL OR stopped_at IS NOT NULL"))


def _verdicts(world: "World") -> None:
    """P7: no agent is declared lost whose heartbeat was young, nor one that was kept from beating by the database alone."""
    for at, agent_id, seen_at in world.store.rows("SELECT at, agent_id, seen_at FROM sim_verdict"):
        at_s, seen_s = seconds(at) - EPOCH_S, seconds(seen_at) - EPOCH_S
        agent = world.incarnations.get(agent_id)
        if at_s - seen_s < DEAD_AFTER_S - TICK_S:
            world.problem("P7", f"agent {agent_id} was declared lost at {at}, its heartbeat was of {seen_at}")
        if agent is not None and _was_well(world, agent, agent_id, seen_s, at_s):
            world.problem("P7", f"{agent.name} was declared lost at {at_s:.3f} though it lived")


def _was_well(world: "World", agent: AgentProgram, agent_id: int, from_s: float, to_s: float) -> bool:
    """Return whether a program ran all the time and had this lease in use."""
    ran = (agent.ended_s is None or agent.ended_s > to_s) and not agent.beat.stood_still(from_s, to_s)
    return ran and agent_id in agent.leases and "database" not in world.plan.slow_s and not world.plan.chances.get("lost_ack")


def _leaks(world: "World") -> None:
    """P7: a living agent's claim ends before its hard deadline, unless the agent or the database stood still."""
    for at, task_id, owner in world.store.rows("SELECT at, task_id, old_owner FROM sim_move WHERE losses>0 AND old_due<at"):
        agent = world.incarnations.get(owner >> OWNER_BITS)
        at_s = seconds(at) - EPOCH_S
        alive = agent is not None and (agent.ended_s is None or agent.ended_s > at_s)
        if agent is not None and alive and not agent.main.stood_still(0, at_s) and not world.weather.struck["database_away"]:
            world.problem("P7", f"task {task_id} stayed in the claim of {owner} of {agent.name} until its deadline, {at_s:.3f}")


def _letters(world: "World") -> None:
    """P8, P9: every dead task and every quarantined record has a dead letter with its bytes."""
    sent: list[dict[str, Any]] = [
        dict(stored.headers) | {"value": stored.value} for log in world.broker.topics["g.dlq"].logs for stored in log.records
    ]
    dead = {header.get("docllm-task"): header["value"] for header in sent if "docllm-quarantine" not in header}
    strange = {header.get("docllm-quarantine") for header in sent}
    for task_id, body in world.store.rows("SELECT d.task_id, i.body FROM dead_letter d JOIN task_input i USING (task_id)"):
        if b"%d" % task_id not in dead:
            world.problem("P8", f"dead task {task_id} has no letter")
        elif dead[b"%d" % task_id] != body and b"unpublishable" not in body:
            world.problem("P8", f"the letter of task {task_id} has other bytes")
    for row_id, topic in world.store.rows("SELECT id, topic FROM quarantine WHERE topic NOT LIKE 'order:%'"):
        if b"%d" % row_id not in strange:
            world.problem("P9", f"the record in quarantine row {row_id} of {topic} has no letter")


def _calls(world: "World") -> None:
    """P4: one call for each claim, and none that begins when its claim is over, unless its agent stood still in between."""
    seen: Counter[tuple[int, int]] = Counter()
    for call in world.llm.calls:
        agent = world.incarnations.get(call.agent_id)
        mine = call.status == Status.PROCESSING and agent is not None and agent.name == call.program
        if mine:
            seen[call.task_id, call.owner] += 1
        if (not mine or call.lost) and not _stood_still(world, call):
            owner = f"{call.owner}, lost" if call.lost else call.owner
            text = f"{call.program} called for task {call.task_id} at {call.at_s:.3f} when it was {Status(call.status).name} of {owner}"
            world.problem("P4", text)
    for (task_id, owner), times in seen.items():
        if times > 1:
            world.problem("P4", f"{times} calls for task {task_id} under the claim of {owner}")


def _stood_still(world: "World", call: Made) -> bool:
    """Return whether the program stood still between its claim and its call: then it could not know better."""
    agent = next(agent for agent in world.agents if agent.name == call.program)
    mine = {agent_id for agent_id, owner in world.incarnations.items() if owner is agent}
    sql = "SELECT at, owner FROM sim_move WHERE task_id=? AND status=1 AND old_status<>1 ORDER BY seq DESC"
    claimed = [seconds(at) - EPOCH_S for at, owner in world.store.rows(sql, call.task_id) if owner >> OWNER_BITS in mine]
    before = [claimed_s for claimed_s in claimed if claimed_s <= call.at_s + TICK_S]
    return bool(before) and agent.main.stood_still(before[0] - TICK_S, call.at_s)
