"""The invariants of a run, each as a function of what was seen from outside: ledger, topics, offsets, the LLM server's log, kills.

A function returns what is wrong, a line each; an empty list means that the invariant held. Nothing here asks docllm itself.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from schemas.task import FINAL, Status
from tests.integration.evidence import Attempt, Call, Evidence, Letter

SHOWN = 5  # violations of one kind that are worth reading
OK = 200
COUNTED = ("retry", "dead")
FREE = {"RATE", "RAMP", "CAPACITY", "MONEY", "AUTH", "ROUTE", "GUARD"}  # what the provider, or docllm, does to all alike
DISPOSITIONS = {"undecodable", "permanent", "exhausted", "expired", "worker_lost", "rejected"}
CLOCK_ERROR_S = 0.05  # between the log's clock and the database's, which counts milliseconds on SQLite


def violations(run: Evidence) -> list[str]:
    """Return what is wrong with a run that has ended, whatever happened in it."""
    checks = (
        not_ended_once,
        results_not_fitting,
        offsets_behind,
        orders_left,
        repeats_unexplained,
        calls_after_the_end,
        attempts_miscounted,
        retries_early,
        calls_overlapping,
        letters_not_fitting,
        deaths_unfounded,
        quarantine_not_fitting,
    )
    return [line for check in checks for line in check(run)]


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
    """P4: a task is called once, and once more for each kill that met it in its victim's claims, and for each attempt that failed."""
    odd, failures = [], _by_task(run.attempts)
    for name, calls in _by_name(run.calls).items():
        for first, second in pairwise(calls):
            met = any(name in kill.claimed and first.start_s <= kill.at_s <= second.start_s for kill in run.kills)
            if met or any(_between(first, one, second) for one in failures[name]):
                continue
            if first.status == OK:
                odd.append(f"{name} was answered at {first.end_s:.3f} and called again at {second.start_s:.3f}")
            elif run.kills and first.status == 0:
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
    """P8: a dead task has one dead letter row, and one letter with its reason, its key and its value, byte for byte.

    Copies are one letter. Nobody else has any, but a task that was replayed keeps those of its earlier deaths.
    """
    found: dict[int, set[Letter]] = defaultdict(set)
    for letter in run.letters:
        if letter.task_id is not None:
            found[letter.task_id].add(letter)
    odd = []
    for task in run.tasks:
        letters = found.pop(task.id, set())
        own = [one for one in letters if one.death == task.death]
        if (task.death is not None) != (task.status == Status.DEAD) or len(own) != (task.death is not None):
            odd.append(f"{task.name} is {Status(task.status).name}: row {task.death}, letters {[one.death for one in letters]}")
        if len(letters) - len(own) > task.replays or len({one.death.fence for one in letters}) < len(letters):
            odd.append(f"{task.name}: replayed {task.replays} times, letters {[one.death for one in letters]}")
        odd += [f"{task.name}: other bytes" for one in letters if (one.key, one.value) != (task.raw_key, task.value)]
    return _some("P8 dead letters", odd) + _some("P8 letters of no task", [str(task_id) for task_id in found])


def deaths_unfounded(run: Evidence) -> list[str]:
    """P8: a disposition is one of those there are, and what is exhausted has used up its attempts."""
    odd = [
        f"{task.name}: {task.death} after {task.attempt} of {task.max_attempts}"
        for task in run.tasks
        if task.death is not None
        and (task.death.disposition not in DISPOSITIONS or (task.death.disposition == "exhausted" and task.attempt < task.max_attempts))
    ]
    return _some("P8 dispositions", odd)


def quarantine_not_fitting(run: Evidence) -> list[str]:
    """P9: every quarantined record has one letter, and no letter lacks its row."""
    rows, letters = Counter(run.quarantined), Counter(one.quarantine_id for one in run.letters if one.quarantine_id is not None)
    return _some(
        "P9 quarantine", [f"{key}: {rows[key]} rows, {letters[key]} letters" for key in rows | letters if rows[key] != letters[key]]
    )


def attempts_miscounted(run: Evidence) -> list[str]:
    """P5: what counts is what failed of its own, once each; what the provider did to all was no attempt and ended nobody."""
    failures = _by_task(run.attempts)
    counted = {name: sum(one.outcome in COUNTED for one in rows) for name, rows in failures.items()}
    odd = [
        f"{task.name}: {task.attempt}, but {counted.get(task.name, 0)} attempts ended as {' or '.join(COUNTED)}"
        for task in run.tasks
        if not task.replays and task.attempt != counted.get(task.name, 0)
    ]
    wrong = [
        f"{one.task}: {one.outcome} for {one.error_class}" for one in run.attempts if one.outcome in COUNTED and one.error_class in FREE
    ]
    return _some("P5 attempts", odd) + _some("P5 counted what is not the task's", wrong)


def retries_early(run: Evidence) -> list[str]:
    """P6: after a counted failure the next attempt is not called before the delay of its tier is over."""
    calls, odd = _by_name(run.calls), []
    for one in run.attempts:
        if one.outcome == "retry":
            due_s = one.settled_s + run.tiers_s[min(one.number, len(run.tiers_s) - 1)]
            odd += [
                f"{one.task}, attempt {call.label}, by {due_s - call.start_utc_s:.3f} s"
                for call in calls[one.task]
                if call.label > one.number + 1 and call.start_utc_s < due_s - CLOCK_ERROR_S
            ]
    return _some("P6 retries too early", odd)


def calls_before_due(run: Evidence, dues: Mapping[tuple[str, int], float]) -> list[str]:
    """P6: no call is made before the due time that the ledger had for it; `dues` is by task and label, in UTC seconds."""
    late = lateness_s(run, dues)
    return _some("P6 before it was due", [f"{name}#{label} by {-by_s:.3f} s" for (name, label), by_s in late.items() if by_s < 0])


def lateness_s(run: Evidence, dues: Mapping[tuple[str, int], float]) -> dict[tuple[str, int], float]:
    """Return how long after its due time each of these calls began."""
    starts: dict[tuple[str, int], float] = {}
    for call in sorted(run.calls, key=lambda one: one.start_s):
        starts.setdefault((call.name, call.label), call.start_utc_s)
    return {key: starts[key] - due_s for key, due_s in dues.items() if key in starts}


def calls_twice(run: Evidence) -> list[str]:
    """At most one call for each attempt of a task; for runs in which nobody was killed and nothing was refused."""
    counts = Counter((call.name, call.label) for call in run.calls)
    return _some("P4 calls of one attempt", [f"{name}#{label}: {count}" for (name, label), count in counts.items() if count > 1])


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


def _between(first: Call, failure: Attempt, second: Call) -> bool:
    """Return whether the failure is that of the first call, and was settled before the second one."""
    after = failure.settled_s >= first.start_utc_s - CLOCK_ERROR_S
    return failure.number + 1 == first.label and after and failure.settled_s <= second.start_utc_s + CLOCK_ERROR_S


def _by_task(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    found: dict[str, list[Attempt]] = defaultdict(list)
    for one in attempts:
        found[one.task].append(one)
    return found


def _by_name(calls: Iterable[Call]) -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda one: one.start_s):
        found[call.name].append(call)
    return found


def _some(kind: str, lines: Sequence[str]) -> list[str]:
    more = [f"{kind}: and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return [f"{kind}: {line}" for line in lines[:SHOWN]] + more
