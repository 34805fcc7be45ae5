"""The judge of a provider's limits: no account gets more calls in a minute than its limit allows.

Each seat has an address of the LLM of its own, so it is an account of its own. Runs with an odd
seed have limits; they are so low that agents reach them when work has piled up.

Tested by tests/unit/tests/faults/test_judge.py.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from tests.faults.faultlog import Event
from tests.faults.received_calls import ReceivedCall
from tests.faults.site import AGENTS, LIMITS, SLOTS
from tests.invariants.quotas import LATE_S, MINUTE_S

_SAVED_S = 1.0  # an idle account saves up less than its rate of so long


def busiest(received: Sequence[ReceivedCall]) -> int:
    """Return the most calls of a seat that began within a minute."""
    counts = (count for seat in AGENTS for _, count in _minutes(received, seat))
    return max(counts, default=0)


def violations(received: Sequence[ReceivedCall], faults: Sequence[Event]) -> Iterator[str]:
    """Yield a line for each account that got more calls in a minute than its limit and its bound.

    Calls that a fault held back come when it is over: at most as many as the agent has slots.
    """
    bound = (LATE_S + _SAVED_S) * LIMITS["rpm"] / MINUTE_S
    for seat in AGENTS:
        of_seat = [fault for fault in faults if seat in fault["seats"]]
        for at_s, count in _minutes(received, seat):
            near = sum(
                fault["start_s"] <= at_s + MINUTE_S and at_s <= fault["end_s"] for fault in of_seat
            )
            most = LIMITS["rpm"] + bound + near * int(SLOTS)
            if count > most:
                yield f"P5 {count} calls of {seat} in the minute from {at_s:.1f}, not {most:.0f}"
                break


def _minutes(received: Sequence[ReceivedCall], seat: str) -> Iterator[tuple[float, int]]:
    """Yield each minute that begins with a call of the seat, and its number of calls."""
    starts_s = sorted(each.call.start_s for each in received if each.seat == seat)
    for number, at_s in enumerate(starts_s):
        yield at_s, bisect_left(starts_s, at_s + MINUTE_S) - number
