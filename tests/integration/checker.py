"""The invariants of a run, each as a function of what was seen from outside: ledger, topics, offsets, the LLM server's log, kills.

A function returns what is wrong, a line each; an empty list means that the invariant held. Nothing here asks docllm itself.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from schemas.task import FINAL, Status

SHOWN = 5  # violations of one kind that are worth reading
OK = 200
CLOCK_ERROR_S = 0.05  # between the log's clock and the database's, which counts milliseconds on SQLite


@dataclass(frozen=True, slots=True)
class Task:
    """A row of the ledger, with its input and its result. `settled_s` is the UTC time of the result in seconds."""

    id: int
    name: str  # batch/key, as the request id spells it
    status: int
    attempt: int = 0
    fence: int = 0
    owner: int = 0
    raw_key: bytes | None = None
    value: bytes = b""
    results: int = 0
    dead_letters: int = 0
    settled_s: float | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """A partition's watermarks and the group's committed offset."""

    topic: str
    number: int
    low: int
    high: int
    committed: int | None


@dataclass(frozen=True, slots=True)
class Letter:
    """A record of the dead letter topic; `task_id` or `quarantine_id` says whose it is."""

    key: bytes | None
    value: bytes | None
    task_id: int | None = None
    quarantine_id: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the LLM server saw it. Times in seconds; `end_s` is None while it has not ended, `status` 0 when the client left."""

    name: str
    start_s: float
    end_s: float | None = None
    status: int = 0
    start_utc_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Kill:
    """A SIGKILL, and the tasks that the ledger showed in the claims of its victim at that moment."""

    at_s: float
    claimed: frozenset[str]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was seen of one run, after its end. `loaded` holds every accepted task once, by name."""

    loaded: frozenset[str]
    tasks: Sequence[Task]
    orders: int = 0
    positions: Sequence[Position] = ()
    letters: Sequence[Letter] = ()
    quarantined: Sequence[int] = ()
    calls: Sequence[Call] = ()
    kills: Sequence[Kill] = ()


def violations(run: Evidence) -> list[str]:
    """Return what is wrong with a run that has ended, whatever happened in it."""
    checks = (not_ended_once, results_not_fitting, offsets_behind, orders_left, repeats_unexplained, calls_after_the_end, calls_overlapping)
    return [line for check in (*checks, letters_not_fitting, quarantine_not_fitting) for line in check(run)]


def not_ended_once(run: Evidence) -> list[str]:
    """P1: every accepted task has one row, and it is final."""
    rows = Counter(task.name for task in run.tasks)
    lost = [f"{name} has {rows[name]} rows" for name in run.loaded | rows.keys() if rows[name] != 1 or name not in run.loaded]
    still = [f"{task.name} is {Status(task.status).name}" for task in run.tasks if task.status not in FINAL]
    return _some("P1 lost or invented", lost) + _some("P1 not final", still)


def results_not_fitting(run: Evidence) -> list[str]:
    """P2: a task has a result exactly when it succeeded, and a final one has no owner."""
    odd = [f"{task.name}: {task.results}" for task in run.tasks if task.results != (task.status == Status.SUCCEEDED)]
    owned = [f"{task.name}" for task in run.tasks if task.status in FINAL and task.owner]
    return _some("P2 results", odd) + _some("P2 final with an owner", owned)


def offsets_behind(run: Evidence) -> list[str]:
    """P3: after the end every partition is committed to its end, and nowhere beyond."""
    odd = [one for one in run.positions if one.high > one.low and one.committed != one.high]
    odd += [one for one in run.positions if one.committed is not None and one.committed > one.high]
    return _some("P3 offsets", [f"{one.topic}/{one.number}: committed {one.committed}, end {one.high}" for one in odd])


def orders_left(run: Evidence) -> list[str]:
    """P1: no publish order waits after the end."""
    return [f"P1 {run.orders} publish orders are left"] if run.orders else []


def repeats_unexplained(run: Evidence) -> list[str]:
    """P4: a task is called once, and once more for each kill that met it in its victim's claims, and for each refusal."""
    odd = []
    for name, calls in _by_name(run.calls).items():
        for first, second in pairwise(calls):
            met = any(name in kill.claimed and first.start_s <= kill.at_s <= second.start_s for kill in run.kills)
            if not met and first.status == OK:
                odd.append(f"{name} was answered at {first.end_s:.3f} and called again at {second.start_s:.3f}")
            elif not met and run.kills and first.status == 0:
                odd.append(f"{name} was left at {first.end_s} and called again, and no killed agent had it")
    return _some("P4 repeated calls", odd)


def calls_after_the_end(run: Evidence) -> list[str]:
    """P4: the LLM answered every task that succeeded, knows no other, and heard of none after its result was stored."""
    by_name, tasks = _by_name(run.calls), {task.name: task for task in run.tasks}
    if not by_name:
        return []
    unheard = [task.name for task in run.tasks if task.status == Status.SUCCEEDED and OK not in {one.status for one in by_name[task.name]}]
    strange = [name for name in by_name if name not in tasks]
    late = [
        f"{call.name} by {call.start_utc_s - settled_s:.3f} s"
        for call in run.calls
        if call.name in tasks and (settled_s := tasks[call.name].settled_s) is not None and call.start_utc_s > settled_s + CLOCK_ERROR_S
    ]
    return _some("P4 succeeded without an answer", unheard) + _some("P4 unknown calls", strange) + _some("P4 called after its end", late)


def calls_overlapping(run: Evidence) -> list[str]:
    """P7: nobody calls for a task while another call for it runs: no live lease was taken."""
    odd = [
        f"{name} at {second.start_s:.3f}"
        for name, calls in _by_name(run.calls).items()
        for first, second in pairwise(calls)
        if first.end_s is None or first.end_s > second.start_s
    ]
    return _some("P7 calls at the same time", odd)


def letters_not_fitting(run: Evidence) -> list[str]:
    """P8: a dead task has one dead letter row and one letter with its key and value, byte for byte; nobody else has any."""
    found: dict[int, list[Letter]] = defaultdict(list)
    for letter in run.letters:
        if letter.task_id is not None:
            found[letter.task_id].append(letter)
    odd = []
    for task in run.tasks:
        wanted = int(task.status == Status.DEAD)
        if task.dead_letters != wanted or len(found[task.id]) != wanted:
            odd.append(f"{task.name}: {task.dead_letters} rows, {len(found[task.id])} letters, wanted {wanted}")
        odd += [f"{task.name}: other bytes" for one in found[task.id] if (one.key, one.value) != (task.raw_key, task.value)]
    return _some("P8 dead letters", odd)


def quarantine_not_fitting(run: Evidence) -> list[str]:
    """P9: every quarantined record has one letter, and no letter lacks its row."""
    rows, letters = Counter(run.quarantined), Counter(one.quarantine_id for one in run.letters if one.quarantine_id is not None)
    return _some(
        "P9 quarantine", [f"{key}: {rows[key]} rows, {letters[key]} letters" for key in rows | letters if rows[key] != letters[key]]
    )


def attempts_spent(run: Evidence) -> list[str]:
    """P5: an outage consumed no attempt and killed nothing; for runs whose only faults were outages."""
    return _some("P5 attempts", [f"{task.name}: {task.attempt}" for task in run.tasks if task.attempt or task.status == Status.DEAD])


def calls_too_early(run: Evidence, status: int, wait_s: float) -> list[str]:
    """P6: after an answer with `status` the same task is not called again before `wait_s`."""
    odd = [
        f"{name} after {second.start_s - (first.end_s or 0):.3f} s"
        for name, calls in _by_name(run.calls).items()
        for first, second in pairwise(calls)
        if first.status == status and second.start_s < (first.end_s or 0) + wait_s
    ]
    return _some("P6 too early", odd)


def _by_name(calls: Iterable[Call]) -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda one: one.start_s):
        found[call.name].append(call)
    return found


def _some(kind: str, lines: Sequence[str]) -> list[str]:
    more = [f"{kind}: and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return [f"{kind}: {line}" for line in lines[:SHOWN]] + more
