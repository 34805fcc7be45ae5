"""Calls of the LLM: each is under its caller's claim, and none is repeated without cause."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import groupby, pairwise
from operator import attrgetter

import orjson

from docllm.agent.judge import CLASSES
from docllm.agent.ledger.settlements.uncounted_ends import FREE_ENDS
from docllm.schemas.task.owner import agent_of
from docllm.schemas.task.states import Status
from tests.invariants.claims import TICK_S
from tests.invariants.evidence import Attempt, Call, Evidence, Task
from tests.invariants.happened import Move
from tests.invariants.history import History

OK = 200
PROMPTS = "docllm-probe/"  # they belong to no task: a route is probed
READ_LATE_S = 2.0  # a busy server may read a victim's request a while after the victim's death
# Between the log's clock and the database's, which counts milliseconds on SQLite.
CLOCK_ERROR_S = 0.05


def without_claim(run: Evidence) -> list[str]:
    """A call begins while its caller's claim runs and its lease is good.

    The exception is a program that stood still between claim and call.
    """
    odd = []
    history = History(run)
    for call in run.calls:
        wrong = _not_allowed(call, run)
        if wrong and not _stood_still(call, run, history):
            odd.append(f"{_caller(call)} called for {call.name} at {call.start_s:.3f}: {wrong}")
    return odd


def more_than_claims(run: Evidence) -> list[str]:
    """One claim has one call, and one more to correct an answer."""
    per_claim = Counter(
        (call.name, call.claim.owner)
        for call in run.calls
        if call.claim is not None and not call.again and not _not_allowed(call, run)
    )
    return [
        f"{times} calls for {name} under the claim of {owner}"
        for (name, owner), times in per_claim.items()
        if times > 1
    ]


def out_of_bounds(run: Evidence) -> list[str]:
    """No call is made on a route that the task's line does not allow."""
    bounds = {task.id: allowed for task in run.tasks if (allowed := _allowed(task)) is not None}
    return [
        f"{call.name} was called on {call.route}, allowed are {', '.join(bounds[call.task_id])}"
        for call in (*run.calls, *run.passed)
        if call.task_id in bounds and call.route not in bounds[call.task_id]
    ]


def _allowed(task: Task) -> list[str] | None:
    """Return the routes that a task's line allows; None if it does not say."""
    if b"routes_allowed" not in task.value:
        return None
    allowed: list[str] = orjson.loads(task.value)["routes_allowed"]
    return allowed


def not_fitting_the_ends(run: Evidence) -> list[str]:
    """The LLM's calls fit the ends of the tasks.

    The LLM answered every task that succeeded, got calls for no unknown task, and none after a
    task's result was stored.
    """
    called, tasks = by_name(run.calls), {task.name: task for task in run.tasks}
    if not called:
        return []
    answered = {call.name for call in run.calls if call.status == OK}
    odd = [
        f"{task.name} succeeded without an answer"
        for task in run.tasks
        if task.status == Status.SUCCEEDED and task.name not in answered
    ]
    odd += [f"{name} was called and is no task" for name in called if name not in tasks]
    for call in run.calls:
        settled_s = (
            tasks[call.name].settled_s if call.name in tasks and call.claim is None else None
        )
        if settled_s is not None and call.start_utc_s > settled_s + CLOCK_ERROR_S:
            odd.append(f"{call.name} was called {call.start_utc_s - settled_s:.3f} s after its end")
    return odd


def given_back(run: Evidence) -> list[str]:
    """The claim of an answered call is not released, unless its agent was asked to leave.

    Otherwise the answer would be thrown away.
    """
    known = {(attempt.task, attempt.owner) for attempt in run.attempts}
    answered = {
        (call.task_id, call.claim.owner): call
        for call in run.calls
        if call.status == OK and call.claim is not None
    }
    odd = []
    for move in run.moves or ():
        call = answered.get((move.task_id, move.old_owner))
        is_unrecorded = call is not None and (call.name, move.old_owner) not in known
        if (
            call is not None
            and is_unrecorded
            and move.ends
            and move.after is Status.PENDING
            and not _leaving(run, move)
        ):
            odd.append(f"{call.name} was answered at {call.end_s or 0:.3f}, then {move}")
    return odd


def bought_again(run: Evidence) -> list[str]:
    """An agent that lost its claim keeps a good answer and does not call for the task again.

    It may call again under another fence, or if it has lost partitions or stood still since the
    first claim.
    """
    if run.revoked_s is None:
        return []
    claims = {(move.task_id, move.owner): move for move in run.moves or () if move.claims}
    reset = {(move.task_id, move.old_owner) for move in run.moves or () if move.losses > 0}
    good: dict[tuple[int, str], tuple[Call, Move]] = {}
    odd = []
    for call in sorted(run.calls, key=lambda one: one.start_s):
        claim = call.claim and claims.get((call.task_id, call.claim.owner))
        if not claim or _not_allowed(call, run):
            continue
        holder = (call.task_id, _caller(call))
        if holder in good:
            first, first_claim = good[holder]
            revoked_s = run.revoked_s.get(_caller(call), ())
            mine = [agent for agent in run.agents.values() if agent.program == _caller(call)]
            if (
                (call.task_id, first_claim.owner) in reset
                and claim.fence == first_claim.fence
                and not any(first_claim.clock_s <= at_s <= call.start_s for at_s in revoked_s)
                and not any(one.stood_still(first_claim.clock_s, call.start_s) for one in mine)
            ):
                odd.append(
                    f"{_caller(call)} was answered for {call.name} at {first.end_s or 0:.3f} "
                    f"and called again at {call.start_s:.3f}"
                )
        if call.good and call.status == OK:
            good[holder] = (call, claim)
    return odd


def paid_without_limit(run: Evidence) -> list[str]:
    """Each attempt with a paid call is counted.

    Exceptions are releases, a few bugs of ours, and faults of the provider as a whole.
    """
    free = {(attempt.task, attempt.owner) for attempt in run.attempts if _is_free_end(attempt)}
    paid = Counter(
        call.name
        for call in run.calls
        if call.status == OK and call.claim and (call.name, call.claim.owner) in free
    )
    return [
        f"{name} was paid {times} times for attempts that do not count"
        for name, times in paid.items()
        if times > FREE_ENDS
    ]


def _is_free_end(attempt: Attempt) -> bool:
    """Return whether an attempt did not count without a provider, guard or cancel as reason."""
    return attempt.outcome == "released" or (
        attempt.outcome == "snooze" and attempt.error_class not in CLASSES
    )


def repeated(run: Evidence) -> list[str]:
    """A task is called once, and again only for a reason.

    A reason is a kill that met the task in its victim's claims, or an attempt that failed. Where
    claims are recorded, they say more.
    """
    odd, failures = [], _by_task(run.attempts)
    for name, task_calls in by_name(call for call in run.calls if call.claim is None).items():
        for first, second in pairwise(task_calls):
            met = any(
                name in kill.claimed and first.start_s - READ_LATE_S <= kill.at_s <= second.start_s
                for kill in run.kills
            )
            failed = any(_between(first, failure, second) for failure in failures[name])
            if met or failed or second.again:
                continue
            if first.status == OK:
                odd.append(
                    f"{name} was answered at {first.end_s:.3f} and called again at "
                    f"{second.start_s:.3f}"
                )
            elif run.kills and first.status == 0:
                odd.append(
                    f"{name} was left at {first.end_s} and called again, and no killed agent had it"
                )
    return odd


def begun_twice(run: Evidence) -> list[str]:
    """A task that must not run twice does not begin again after a run that was cut off.

    It may after an end that was written under the run's own claim, and after a replay.
    """
    written = {
        (attempt.task, attempt.owner)
        for attempt in run.attempts
        if attempt.outcome in {"retry", "snooze", "moved"}
    }
    names, history = {task.id: task.name for task in run.tasks}, History(run)
    once = (each for each in run.handler_runs if each.once)
    runs, odd = sorted(once, key=attrgetter("task_id", "begun")), []
    for task_id, of_task in groupby(runs, attrgetter("task_id")):
        for first, second in pairwise(of_task):
            claims = history.claims(task_id, -math.inf, first.begun)
            owner = claims[-1].owner if claims else None
            between = [
                move
                for move in run.moves or ()
                if move.task_id == task_id and first.begun < move.order < second.begun
            ]
            has_ended = first.ended is not None and first.ended < second.begun
            was_reset = any(move.before is Status.PROCESSING and move.owner for move in between)
            is_known = (names[task_id], owner) in written
            if any(move.replays for move in between) or is_known or (has_ended and not was_reset):
                continue
            odd.append(f"{names[task_id]}, after a run under {owner} that was cut off")
    return odd


def late_not_done(run: Evidence) -> list[str]:
    """A late record of an archived batch is done and costs no call, whether its row is there.

    No replay takes its tasks, and a purge leaves none of them.
    """
    if (late := run.late) is None:
        return []
    odd = [f"{name} was called after its batch was archived" for name in late.called]
    odd += [f"task {task_id} changed after its batch was archived" for task_id in late.moved]
    odd += [f"{late.quarantined} records of it were quarantined"] if late.quarantined else []
    return odd + ([f"the purge left {late.left} tasks"] if late.left else [])


def overlapping(run: Evidence) -> list[str]:
    """No call for a task begins while another call for it runs.

    Where claims are recorded, they say more.
    """
    odd = []
    for name, task_calls in by_name(call for call in run.calls if call.claim is None).items():
        pairs = (
            second
            for first, second in pairwise(task_calls)
            if first.end_s is None or first.end_s > second.start_s
        )
        odd += [f"{name} at {second.start_s:.3f}" for second in pairs]
    return odd


def retried_early(run: Evidence) -> list[str]:
    """After a counted failure the next attempt does not begin before its tier's delay is over."""
    calls, history, odd = by_name(run.calls), History(run), []
    for attempt in run.attempts:
        if attempt.outcome == "retry":
            due_s = attempt.settled_s + run.tiers_s[min(attempt.number, len(run.tiers_s) - 1)]
            # Calls after the first follow a snooze or a release, which have a due time of their
            # own. A lower number belongs to a replay.
            following = next(
                (call for call in calls[attempt.task] if _after(call, attempt, history)), None
            )
            if following is None or following.label != attempt.number + 2:
                continue
            if (by_s := due_s - _begun_s(following, attempt, history)) > CLOCK_ERROR_S:
                odd.append(f"{attempt.task}, attempt {following.label}, by {by_s:.3f} s")
    return odd


def _after(call: Call, attempt: Attempt, history: History) -> bool:
    """Return whether a call began after an attempt had ended.

    If no more is known, the database's clock decides, which may have been set back.
    """
    ended = history.ended(call.task_id, attempt.owner) if attempt.owner else None
    return call.start_utc_s > attempt.settled_s if ended is None else call.order > ended.order


def _begun_s(call: Call, attempt: Attempt, history: History) -> float:
    """Return until when a task has waited after an attempt, by the database's clock.

    This is the latest time of a claim since, if claims are known, because the clock may be set back
    after a claim. A claim whose task only moved on to another tier has ended its wait too.
    """
    ended = history.ended(call.task_id, attempt.owner) if attempt.owner else None
    claims = history.claims(call.task_id, -math.inf if ended is None else ended.order, call.order)
    return max((claim.at_s for claim in claims), default=call.start_utc_s)


def by_name(calls: Iterable[Call]) -> dict[str, list[Call]]:
    """Return the calls of each task in the order in which they began."""
    calls_by_name: dict[str, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: call.start_s):
        if not call.name.startswith(PROMPTS):
            calls_by_name[call.name].append(call)
    return calls_by_name


def _not_allowed(call: Call, run: Evidence) -> str:
    """Return why a caller may not make a call; empty if it may or claims are unrecorded."""
    claim = call.claim
    if claim is None:
        return ""
    agent = run.agents.get(agent_of(claim.owner))
    if claim.status is not Status.PROCESSING or agent is None or agent.program != claim.program:
        return f"it was {claim.status.name} of {claim.owner}"
    if agent.lost is not None and agent.lost < call.order:
        return f"its claim was of {claim.owner}, which had been declared lost"
    if claim.cancelled:
        return "its batch was cancelled when it was claimed"
    if not claim.known:
        return "its program did not know the task's type"
    return "its deadline had passed when it was claimed" if claim.expired else ""


def _stood_still(call: Call, run: Evidence, history: History) -> bool:
    """Return whether the program stood still between its claim and its call.

    Then it could not know better.
    """
    callers = [agent for agent in run.agents.values() if agent.program == _caller(call)]
    claimed = history.last_claim(
        call.task_id, call.order, frozenset(agent.agent_id for agent in callers)
    )
    return claimed is not None and any(
        agent.stood_still(claimed.clock_s - TICK_S, call.start_s) for agent in callers
    )


def _caller(call: Call) -> str:
    return "" if call.claim is None else call.claim.program


def _leaving(run: Evidence, move: Move) -> bool:
    """Return whether an agent had been asked to leave when it gave a claim back."""
    agent = run.agents.get(agent_of(move.old_owner))
    return agent is not None and agent.asked_s is not None and agent.asked_s <= move.clock_s


def _between(first: Call, failure: Attempt, second: Call) -> bool:
    """Return whether the failure belongs to the first call and was settled before the second."""
    after = failure.settled_s >= first.start_utc_s - CLOCK_ERROR_S
    return (
        failure.number + 1 == first.label
        and after
        and failure.settled_s <= second.start_utc_s + CLOCK_ERROR_S
    )


def _by_task(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    by_task: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        by_task[attempt.task].append(attempt)
    return by_task
