"""Claims and leases: who took a task when, and how the claim ended."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from math import inf

from docllm.agent.ledger.leases.leasing import LOST_AFTER_S
from docllm.schemas.task.owner import agent_of
from docllm.schemas.task.states import FINAL, Status
from tests.invariants.evidence import Evidence
from tests.invariants.happened import Incarnation, Move
from tests.invariants.history import History

TICK_S = 0.01  # times in a database may be in milliseconds


def ended_twice(run: Evidence) -> list[str]:
    """A claim ends once."""
    return [
        f"task {task_id}: the claim of {owner}, {times} times"
        for (task_id, owner), times in _ends(run).items()
        if times > 1
    ]


def ended_by_others(run: Evidence) -> list[str]:
    """A written attempt or result carries the owner of a claim that ended."""
    if run.moves is None:
        return []
    ids, ends = {task.name: task.id for task in run.tasks}, _ends(run)
    written = [(attempt.task, attempt.owner, attempt.outcome) for attempt in run.attempts]
    written += [(task.name, task.result_owner, "result") for task in run.tasks]
    odd = [end for end in written if end[1] and (ids[end[0]], end[1]) not in ends]
    return [f"{name}: {what} under {owner}, whose claim it was not" for name, owner, what in odd]


def taken_over(run: Evidence) -> list[str]:
    """A running claim is not replaced by another claim without a reset."""
    moves = [
        move for move in run.moves or () if move.before is Status.PROCESSING and move.old_owner
    ]
    return [str(move) for move in moves if move.owner not in {0, move.old_owner}]


def early(run: Evidence) -> list[str]:
    """A task is not claimed before it is due."""
    moves = [move for move in run.moves or () if move.claims and move.old_due_s > move.at_s]
    return [f"{move}, {move.old_due_s - move.at_s:.3f} s before it was due" for move in moves]


def before_its_time(run: Evidence) -> list[str]:
    """A task is not first claimed before its line's `not_before`, unless somebody has replayed it.

    Its later claims may read an earlier time: the database's clock may be set back meanwhile.
    """
    times = {task.id: task.not_before_s for task in run.tasks if not task.replays}
    first: dict[int, Move] = {}
    for move in run.moves or ():
        if move.claims:
            first.setdefault(move.task_id, move)
    moves = [move for move in first.values() if move.at_s < times.get(move.task_id, -inf)]
    return [f"{move}, {times[move.task_id] - move.at_s:.3f} s before its time" for move in moves]


def before_its_siblings(run: Evidence) -> list[str]:
    """A join is claimed when its siblings have all ended since it began to wait.

    It begins to wait when it is made, and when it is replayed. A join that waits for replays is
    claimed when they have all succeeded.
    """
    if not run.joins:
        return []
    moves: defaultdict[int, list[Move]] = defaultdict(list)
    for move in run.moves or ():
        moves[move.task_id].append(move)
    early = []
    for join in run.joins:
        began = 0.0  # the end of the transaction in which it began to wait
        for move in moves[join.task_id]:
            if move.before is None or move.replays:
                began = (move.order // join.turn + 1) * join.turn
            if move.claims:
                early += [
                    f"{move}, before task {sibling}"
                    for sibling in join.siblings
                    if not _has_ended(moves[sibling], began, move.order, succeeded=join.waits)
                ]
    return early


def _has_ended(moves: Sequence[Move], began: float, until: float, *, succeeded: bool) -> bool:
    """Return whether a task was final at one time, or succeeded."""
    states = [(move.order, move.after) for move in moves if move.order <= until]
    before = [state for order, state in states if order < began][-1:]
    since = [*before, *(state for order, state in states if order >= began)]
    if succeeded:
        return Status.SUCCEEDED in since
    return any(state in FINAL for state in since)


def reaped_alive(run: Evidence) -> list[str]:
    """A task is reset when its claim is overdue, or when its agent is gone."""
    reaped = [move for move in run.moves or () if move.losses > 0 and move.old_due_s >= move.at_s]
    return [str(move) for move in reaped if not _gone(run, move)]


def lost_otherwise(run: Evidence) -> list[str]:
    """Each reset is written once as a lost attempt, until its claim settles late after all.

    A claim whose answer was lost is made again under its number, and so may be reset again. A
    task's losses are its lost attempts, and the runs that their own agents cut off.
    """
    if run.moves is None or run.losses is None:
        return []
    written = Counter((loss.task_id, loss.owner) for loss in run.losses if loss.owner is not None)
    reset = Counter[tuple[int, int]]()
    late: set[tuple[int, int]] = set()
    cancelled: set[tuple[int, int]] = set()  # by a person, or late
    for move in run.moves:
        claim = (move.task_id, move.old_owner)
        if move.before is Status.PROCESSING and move.losses > 0:
            reset[claim] += 1
        elif move.before is Status.PENDING and move.old_owner and move.owner == 0:
            (cancelled if move.after is Status.CANCELLED else late).update({claim} & reset.keys())
    known = {task.id for task in run.tasks}
    odd = [
        f"{claim}: {times} rows" for claim, times in written.items() if times > max(1, reset[claim])
    ]
    odd += [
        f"{claim}: none"
        for claim in reset.keys() - late - cancelled - written.keys()
        if claim[0] in known
    ]
    odd += [f"{claim}: settled late" for claim in late & written.keys()]
    rows = Counter(task_id for task_id, _ in written.elements())
    cut_off = _cut_off(run, written.keys())
    for loss in run.losses:
        least, most = cut_off[loss.task_id]
        beside = loss.times - rows[loss.task_id]
        if loss.owner is None and not least <= beside <= most:
            odd.append(
                f"task {loss.task_id}: counts {loss.times}, has {rows[loss.task_id]}, and "
                f"{least} to {most} runs were cut off"
            )
    return [f"lost attempt of {text}" for text in odd]


def _cut_off(run: Evidence, lost: Collection[tuple[int, int]]) -> defaultdict[int, list[int]]:
    """Return how many runs of each task its agents cut off, at least and at most.

    The claims of lost agents are `lost`: a task that must not run twice ends with such a claim. A
    person may cancel a task beside the settle of such a run. Where runs were not recorded, it may
    be any claim that has ended.
    """
    names, history = {task.id: task.name for task in run.tasks}, History(run)
    classes = {(attempt.task, attempt.owner): attempt.error_class for attempt in run.attempts}
    recorded = {each.task_id for each in run.handler_runs}
    recorded.update(task.id for task in run.tasks if b'"type"' not in task.value)  # they have none
    cut_off: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
    for move in run.moves or ():
        cut_off[move.task_id][1] += move.ends and move.task_id not in recorded
    for each in run.handler_runs:
        claims = history.claims(each.task_id, -inf, each.begun)
        owner = claims[-1].owner if claims else 0
        end = history.ended(each.task_id, owner, each.begun) if owner else None
        if end is None or not end.ends or (each.task_id, owner) in lost:
            continue
        error_class = classes.get((names[each.task_id], owner))
        has_ended = each.ended is not None and each.ended < end.order
        is_cut_off = error_class == "WORKER_LOST" or (
            not has_ended and error_class in {None, "RELEASED", "CANCELLED"}
        )
        cut_off[each.task_id][0] += is_cut_off and end.after is not Status.CANCELLED
        cut_off[each.task_id][1] += is_cut_off
    return cut_off


def judged_alive(run: Evidence) -> list[str]:
    """No agent is declared lost whose heartbeat was recent, or that was able to send one."""
    odd = []
    for declared in run.declared_lost:
        if declared.silent_s < LOST_AFTER_S - TICK_S:
            odd.append(
                f"agent {declared.agent_id} at {declared.clock_s:.3f}, {declared.silent_s:.3f} "
                "s after its heartbeat"
            )
        agent = run.agents.get(declared.agent_id)
        if (
            agent is not None
            and agent.served_at_once
            and agent.beat(declared.clock_s - declared.silent_s, declared.clock_s)
        ):
            odd.append(
                f"agent {declared.agent_id} of {agent.program} at {declared.clock_s:.3f}, "
                "though it lived and beat"
            )
    return odd


def leaked(run: Evidence) -> list[str]:
    """A claim of a living agent ends before it is overdue."""
    late = [move for move in run.moves or () if move.losses > 0 and move.old_due_s < move.at_s]
    return [
        f"{move}, of {agent.program}"
        for move in late
        if (agent := _agent(run, move)) is not None and _was_well(agent, move)
    ]


def _was_well(agent: Incarnation, move: Move) -> bool:
    return agent.served and agent.ran(move.clock_s) and not agent.stood_still(0, move.clock_s)


def _gone(run: Evidence, move: Move) -> bool:
    agent = _agent(run, move)
    return agent is not None and agent.gone is not None and agent.gone < move.order


def _agent(run: Evidence, move: Move) -> Incarnation | None:
    return run.agents.get(agent_of(move.old_owner))


def _ends(run: Evidence) -> Counter[tuple[int, int]]:
    ended = (
        move
        for move, before in _with_before(run.moves or ())
        if move.ends and not _undone(move, before)
    )
    return Counter((move.task_id, move.old_owner) for move in ended)


def _with_before(moves: Sequence[Move]) -> Iterator[tuple[Move, Move | None]]:
    last: dict[int, Move] = {}
    for move in moves:
        yield move, last.get(move.task_id)
        last[move.task_id] = move


def _undone(move: Move, before: Move | None) -> bool:
    """Return whether a claim was undone in its own transaction.

    This happens when the record was not the task's; the claim may be repeated.
    """
    return (
        before is not None
        and before.claims
        and before.at_s == move.at_s
        and move.after is Status.PENDING
    )
