"""How tasks ended: each once, in one state, with the rows of that state."""

from collections import Counter

from docllm.schemas.task.states import FINAL, Status
from tests.invariants.evidence import Evidence


def lost_or_invented(run: Evidence) -> list[str]:
    """Every accepted task has one row, and every row is of an accepted task."""
    rows = Counter(task.name for task in run.tasks)
    return [
        f"{name} has {rows[name]} rows"
        for name in sorted(run.loaded | rows.keys())
        if rows[name] != 1 or name not in run.loaded
    ]


def made_without_parent(run: Evidence) -> list[str]:
    """A follow-up is made in the transaction in which its parent succeeds, and in no other."""
    return [task.name for task in run.tasks if not task.with_parent]


def not_final(run: Evidence) -> list[str]:
    """Every task is final, but a join that waits for the replay of a dead sibling."""
    return [
        f"{task.name} is {Status(task.status).name}"
        for task in run.tasks
        if task.status not in FINAL and not task.stopped
    ]


def orders_left(run: Evidence) -> list[str]:
    """No publish order waits after the end."""
    return [f"{run.orders} publish orders"] if run.orders else []


def changes_ignored(run: Evidence) -> list[str]:
    """What a replay has changed of a task is what its answer is to."""
    return [task.name for task in run.tasks if not task.as_changed]


def final_left(run: Evidence) -> list[str]:
    """Only a replay leaves a final state, and nothing leaves a success."""
    return [
        str(move)
        for move in run.moves or ()
        if move.before in FINAL and (not move.replays or move.before is Status.SUCCEEDED)
    ]


def fences_fallen(run: Evidence) -> list[str]:
    """The number of a task's newest record never falls."""
    return [str(move) for move in run.moves or () if move.fence < move.old_fence]


def miscounted(run: Evidence) -> list[str]:
    """Roll-ups and tally together have each count once."""
    return [
        f"{sums.name} of {key}: {sums.written.get(key, 0)} written, {sums.kept.get(key, 0)} kept"
        for sums in run.sums
        for key in sorted(sums.written.keys() | sums.kept.keys())
        if sums.written.get(key) != sums.kept.get(key)
    ]


def misread(run: Evidence) -> list[str]:
    """The sums of all that happened are those of the history at each moment, so they never fall."""
    return list(run.misread)


def below_zero(run: Evidence) -> list[str]:
    """No more tasks leave a final state than entered it, by any part of its key."""
    return [
        f"{sums.name} of {key}: {sums.kept[key][sums.balance]} tasks"
        for sums in run.sums
        if sums.balance is not None
        for key in sorted(sums.kept)
        if sums.kept[key][sums.balance] < 0
    ]


def results_not_fitting(run: Evidence) -> list[str]:
    """A task has a result exactly when it succeeded."""
    return [
        f"{task.name}: {task.results}"
        for task in run.tasks
        if task.results != (task.status == Status.SUCCEEDED)
    ]


def owned_at_the_end(run: Evidence) -> list[str]:
    """A final task has no owner."""
    return [
        f"{task.name} of {task.owner}" for task in run.tasks if task.status in FINAL and task.owner
    ]


_EVENTS = {Status.SUCCEEDED: "success", Status.DEAD: "dead", Status.RETRYING: "retry"}


def hooks_lost(run: Evidence) -> list[str]:
    """A hook runs after each end of an attempt that has one, whatever is killed meanwhile."""
    ordered = Counter(
        (move.task_id, _EVENTS[move.after])
        for move in run.moves or ()
        if move.task_id in run.hooked
        and move.before not in FINAL
        and (
            move.after in {Status.SUCCEEDED, Status.DEAD}
            or (move.attempts and move.after in _EVENTS)
        )
    )
    ran = Counter(run.hooks_run)
    return [
        f"on_{event} of task {task_id} ran {ran[task_id, event]} times, {times} were ordered"
        for (task_id, event), times in sorted(ordered.items())
        if ran[task_id, event] < times
    ]


def told_too_early(run: Evidence) -> list[str]:
    """The hook of the batch is called for a round after all tasks were final for so many times.

    A batch that was cancelled before its first task was loaded has ended once, at any time.
    """
    loaded = {task_id for task_id, was_loaded in run.of_batch.items() if was_loaded}
    ended = [] if run.of_batch else [float("-inf")]
    seen: set[int] = set()
    still_open: set[int] = set()
    for move in run.moves or ():
        if move.task_id not in run.of_batch:
            continue
        at_rest = seen >= loaded and not still_open
        seen.add(move.task_id)
        (still_open.discard if move.after in FINAL else still_open.add)(move.task_id)
        if not at_rest and seen >= loaded and not still_open:
            ended.append(move.order)
    return [
        f"round {number} of the batch was told at {order}; it had ended {times} times"
        for order, number in run.ends_told
        for times in [sum(end < order for end in ended)]
        if times < number
    ]


def lines_lost(run: Evidence) -> list[str]:
    """The topic of results has the last end of every task that succeeded or died."""
    if run.lines is None:
        return []
    return [
        f"{task.name} is {name}, and no line says so"
        for task in run.tasks
        for name in [Status(task.status).name.lower()]
        if task.status in {Status.SUCCEEDED, Status.DEAD} and (task.name, name) not in run.lines
    ]
