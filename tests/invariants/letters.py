"""Dead letters, replays and the quarantine."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from docllm.schemas.task.states import Status
from tests.invariants.evidence import Evidence, Letter

DISPOSITIONS = {"undecodable", "permanent", "exhausted", "expired", "worker_lost", "rejected"}


def not_fitting(run: Evidence) -> list[str]:
    """Every death has one dead letter with its reason, and every dead letter has a death.

    A task has a dead letter's row while it is dead. Copies are one dead letter. A replayed task
    keeps the dead letters of its earlier deaths.
    """
    by_task: dict[int | None, set[Letter]] = defaultdict(set)
    for letter in run.letters:
        if letter.quarantine_id is None:
            by_task[letter.task_id].add(letter)
    deaths = _deaths(run)
    odd = []
    for task in run.tasks:
        letters = by_task.pop(task.id, set())
        fences = sorted(sent.death.fence for sent in letters)
        own, dead = (
            [sent for sent in letters if sent.death == task.death],
            task.status == Status.DEAD,
        )
        fits = (
            fences == sorted(deaths[task.id])
            if run.moves is not None
            else len(set(fences)) == len(fences) <= task.replays + dead
        )
        if not fits or (task.death is not None) != dead or len(own) != dead:
            odd.append(
                f"{task.name} is {Status(task.status).name}: row {task.death}, letters "
                f"{[sent.death for sent in letters]}"
            )
    return odd + [f"a letter of task {task_id}, which is not there" for task_id in by_task]


def other_bytes(run: Evidence) -> list[str]:
    """A dead letter has its task's key and value, byte for byte.

    A pointer record, whose topic refused the value, has the key.
    """
    tasks = {task.id: task for task in run.tasks}
    own = [
        (tasks[letter.task_id], letter)
        for letter in _of_tasks(run.letters)
        if letter.task_id in tasks
    ]
    return [
        task.name
        for task, letter in own
        if (letter.key, letter.value) != (task.raw_key, None if letter.pointer else task.value)
    ]


def unfounded(run: Evidence) -> list[str]:
    """Every disposition is a known one, and an exhausted task has used up its attempts."""
    dead = [(task, task.death) for task in run.tasks if task.death is not None]
    strange = [(task, death) for task, death in dead if death.disposition not in DISPOSITIONS]
    early = [
        (task, death)
        for task, death in dead
        if death.disposition == "exhausted" and task.attempt < task.max_attempts
    ]
    return [
        f"{task.name}: {death} after {task.attempt} of {task.max_attempts}"
        for task, death in strange + early
    ]


def replayed_twice(run: Evidence) -> list[str]:
    """A death is taken back once for each applied item, and no item is left waiting.

    The row counts its replays.
    """
    if run.moves is None:
        return []
    applied = Counter((item.task_id, item.fence) for item in run.replayed if item.applied)
    done = Counter((move.task_id, move.old_fence) for move in run.moves if move.replays)
    odd = [
        f"replay {item.run_id}: task {item.task_id} still waits"
        for item in run.replayed
        if item.waits
    ]
    odd += [
        f"task {key[0]}: its end at fence {key[1]} was taken back {done[key]} times, for "
        f"{applied[key]} items"
        for key in sorted(applied.keys() | done.keys())
        if done[key] > 1 or applied[key] != done[key]
    ]
    total = Counter(move.task_id for move in run.moves if move.replays)
    return odd + [
        f"{task.name} counts {task.replays}, it was {total[task.id]}"
        for task in run.tasks
        if task.replays != total[task.id]
    ]


def written_twice(run: Evidence) -> list[str]:
    """A dead letter that somebody writes back gets no second letter."""
    return [f"quarantine {row} is a letter that came back" for row in run.letters_again]


def quarantine_not_fitting(run: Evidence) -> list[str]:
    """Every quarantined record has a dead letter, and no such dead letter lacks its row.

    Copies count once.
    """
    rows, sent = (
        set(run.quarantined),
        {letter.quarantine_id for letter in run.letters if letter.quarantine_id is not None},
    )
    odd = [f"row {row} has no letter" for row in sorted(rows - sent)]
    return odd + [f"a letter of row {row}, which is not there" for row in sorted(sent - rows)]


def _of_tasks(letters: Iterable[Letter]) -> list[Letter]:
    return [letter for letter in letters if letter.task_id is not None]


def _deaths(run: Evidence) -> dict[int, list[int]]:
    """Return the fences at which each task died."""
    fences: dict[int, list[int]] = defaultdict(list)
    for move in run.moves or ():
        if move.after is Status.DEAD:
            fences[move.task_id].append(move.fence)
    return fences
