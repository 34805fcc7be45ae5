"""The cost of failures: a provider's failure costs no attempt, and none ends a program."""

from collections import Counter
from collections.abc import Mapping, Sequence

from docllm.agent.judge.guard_rule import WINDOW_S
from docllm.agent.routes.circuit import run_for
from docllm.schemas.task.owner import agent_of
from docllm.schemas.task.states import Status
from tests.invariants.calls import OK
from tests.invariants.evidence import Call, Evidence
from tests.invariants.happened import Count, Guarded, Outage

COUNTED = ("retry", "dead")
# Causes that the provider or docllm applies to all tasks alike.
FREE = {"RATE", "RAMP", "CAPACITY", "MONEY", "AUTH", "ROUTE", "GUARD", "UNKNOWN_TYPE", "SCHEDULE"}
COUNTS = {"SERVER", "NETWORK", "AMBIGUOUS"}  # until the route has stopped
MIN_PAUSE_S = 0.5


def neighbours_blamed(run: Evidence) -> list[str]:
    """An attempt counts for the end of its process only if its own handler ends processes."""
    return [task for task, is_guilty in run.blamed if not is_guilty]


def free_counted(run: Evidence) -> list[str]:
    """Failures that are not the task's own consume no attempt and end no task.

    These are a rate limit, a lack of room, of money or of a key, a closed route, and a guard.
    """
    odd = [
        attempt
        for attempt in run.attempts
        if attempt.outcome in COUNTED and attempt.error_class in FREE
    ]
    return [f"{attempt.task}: {attempt.outcome} for {attempt.error_class}" for attempt in odd]


def miscounted(run: Evidence) -> list[str]:
    """A task's attempt count is the number of its attempts that failed of their own."""
    counted = Counter(attempt.task for attempt in run.attempts if attempt.outcome in COUNTED)
    odd = [task for task in run.tasks if not task.replays and task.attempt != counted[task.name]]
    return [
        f"{task.name}: {task.attempt}, but {counted[task.name]} attempts ended as "
        f"{' or '.join(COUNTED)}"
        for task in odd
    ]


def outages_counted(run: Evidence) -> list[str]:
    """An outage counts no more attempts than those that stopped the route.

    In each agent these are its slots, and the run of failures that shows the outage.
    """
    counted = {
        (attempt.task, attempt.owner)
        for attempt in run.attempts
        if attempt.outcome in COUNTED and attempt.error_class in COUNTS
    }
    odd = []
    for outage in run.outages:
        spent = [
            call
            for call in _calls(run, outage)
            if call.claim is not None and (call.name, call.claim.owner) in counted
        ]
        if len(spent) > _most(run) * _agents(run, outage) + _begun_again(run, outage):
            odd.append(f"{len(spent)} attempts for {outage}")
    return odd


def calls_into_outages(run: Evidence) -> list[str]:
    """While a route fails, only the calls that show it are made, and then one at a time."""
    odd = []
    for outage in run.outages:
        calls = len(_calls(run, outage))
        single = (outage.to_s - outage.from_s) / MIN_PAUSE_S + 1
        if calls > (_most(run) + single) * _agents(run, outage) + _begun_again(run, outage):
            odd.append(f"{calls} calls into {outage}")
    return odd


def deaths_not_held_back(run: Evidence) -> list[str]:
    """No task dies of used-up attempts on a silent route, or under a raised guard but in its looks.

    A silent route had no success for the guard's window. Under a raised guard no more tasks die of
    used-up attempts, or of refusals under a guard for refusals, than went in its looks.
    """
    odd = []
    places = {id(guard): sorted(guard.tried, reverse=True) for guard in run.guards}
    for death in sorted(run.counts, key=lambda count: count.order):
        if death.state is not Status.DEAD or death.delta <= 0:
            continue
        holding = [guard for guard in run.guards if _holds(run, guard, death)]
        if holding and not _take_places(holding, death, places):
            odd.append(f"{death} under a raised guard")
        elif death.disposition == "exhausted" and not (
            _works(run, death) or any(_trusted(guard, death) for guard in run.guards)
        ):
            odd.append(f"{death} though nothing succeeded on its route")
    return odd


def _take_places(
    holding: Sequence[Guarded], death: Count, places: Mapping[int, list[float]]
) -> bool:
    """Return whether so many tasks as died had gone in looks before; each of them dies once."""
    for _ in range(death.delta):
        free = next(
            (
                places[id(guard)]
                for guard in holding
                if places[id(guard)] and places[id(guard)][-1] <= death.order
            ),
            None,
        )
        if free is None:
            return False
        free.pop()
    return True


def programs_ended(run: Evidence) -> list[str]:
    """No program ends by an error of its own."""
    return list(run.failures)


def _calls(run: Evidence, outage: Outage) -> list[Call]:
    return [
        call
        for call in run.calls
        if call.route == outage.route and outage.from_s <= call.start_s < outage.to_s
    ]


def _most(run: Evidence) -> int:
    return run.slots + run_for(run.slots)


def _begun_again(run: Evidence, outage: Outage) -> int:
    """Return the most failures that an answer in between may keep from counting as a run.

    Such an answer is to a call that began before the outage.
    """
    earlier = [
        call for call in run.calls if call.route == outage.route and call.start_s < outage.from_s
    ]
    good = sum(
        call.status == OK and call.end_s is not None and outage.from_s <= call.end_s < outage.to_s
        for call in earlier
    )
    return good * (run_for(run.slots) - 1)


def _agents(run: Evidence, outage: Outage) -> int:
    """Return how many programs called into an outage: each learns of it by itself."""
    owners = {agent_of(call.claim.owner) for call in _calls(run, outage) if call.claim is not None}
    return max(1, len({run.agents[owner].program for owner in owners if owner in run.agents}))


def _holds(run: Evidence, guard: Guarded, death: Count) -> bool:
    """Return whether the guard was raised and stands against this death.

    It does not stand against a refusal once a task has succeeded. A success in the transaction of
    the death counts too, though it may be written after it.
    """
    about = (guard.batch_id, guard.type) == (death.batch_id, death.type) and guard.route in {
        "",
        death.route,
    }
    raised = (
        about
        and guard.raised < death.order
        and (guard.opened is None or guard.opened > death.order)
    )
    if death.disposition == "exhausted" or not raised:
        return raised
    refused = (death.disposition, death.outcome, guard.cause) == (
        "permanent",
        "BAD_REQUEST",
        "bad_request",
    )
    return refused and not any(
        _same_key(count, death) and count.state is Status.SUCCEEDED
        for count in run.counts
        if count.order <= death.order or count.at_s == death.at_s
    )


def _same_key(count: Count, other: Count) -> bool:
    return (count.batch_id, count.type, count.route) == (other.batch_id, other.type, other.route)


def _trusted(guard: Guarded, death: Count) -> bool:
    """Return whether the guard was opened before: whoever did so knows that the route works."""
    about = (guard.batch_id, guard.type, guard.route) == (death.batch_id, death.type, death.route)
    return about and guard.opened is not None and guard.opened < death.order


def _works(run: Evidence, death: Count) -> bool:
    """Return whether something succeeded on the route lately.

    After a backward clock jump the success may be dated later than the death.
    """
    vouching = (
        count
        for count in run.counts
        if count.state is Status.SUCCEEDED and count.route == death.route
    )
    return any(
        death.at_s - count.at_s <= WINDOW_S
        and (count.order < death.order or death.at_s - count.at_s >= -1)
        for count in vouching
    )
