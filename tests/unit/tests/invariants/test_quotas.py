"""The limits of the provider, judged by the calls of a run."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from docllm.schemas.task.states import Status
from tests.invariants.evidence import Call, Evidence, Quota
from tests.invariants.happened import Claim, Incarnation
from tests.invariants.quotas import above_the_day, above_the_rate, more_at_once, more_tokens

QUOTA = Quota(route="default", rpm=60, in_flight=2, agents=1)


def run(times_s: Sequence[float], quota: Quota = QUOTA, **changed: object) -> Evidence:
    """Return a run whose calls begin at these times and last three seconds."""
    call = Call("b/1", 0.0, 3.0, 200, route="default", claim=Claim("agent-1", Status.PROCESSING, 1))
    call = replace(call, **changed)  # type: ignore[arg-type]
    calls = [replace(call, start_s=at_s, end_s=at_s + 3) for at_s in times_s]
    return Evidence(loaded=frozenset(), tasks=(), calls=calls, quota=quota)


@pytest.mark.parametrize(
    ("every_s", "broken"), [(1.0, False), (1.01, False), (0.5, True), (0.9, True)]
)
def test_calls_come_no_faster_than_the_limit(every_s: float, *, broken: bool) -> None:
    """Twice the rate is found soon, a little more than the rate within minutes."""
    calls = [number * every_s for number in range(120)]

    assert bool(above_the_rate(run(calls))) is broken
    assert above_the_rate(run(calls, replace(QUOTA, rpm=0))) == []


def test_a_small_burst_is_allowed() -> None:
    """An idle account saves up a little; each fault of Redis allows a little more."""
    assert above_the_rate(run([10.0] * 5)) == []
    assert above_the_rate(run([10.0] * 9)) != []
    assert above_the_rate(run([10.0] * 9, replace(QUOTA, faults=3))) == []


@pytest.mark.parametrize("changed", [{"route": "slow"}, {"name": "docllm-probe/default"}])
def test_other_calls_do_not_count(changed: dict[str, Any]) -> None:
    """Other routes have other accounts, and a cheap prompt that probes a route has no grant."""
    assert above_the_rate(run([10.0] * 9, **changed)) == []


@pytest.mark.parametrize(("tokens", "broken"), [(20, False), (21, True), (40, True)])
def test_calls_cost_no_more_tokens_than_the_limit(tokens: int, *, broken: bool) -> None:
    """Twice the tokens are found soon, a little more within minutes; one large call is allowed."""
    quota = replace(QUOTA, tpm=1200)
    calls = [float(number) for number in range(300)]

    assert bool(more_tokens(run(calls, quota, tokens_in=tokens - 5, tokens_out=5))) is broken
    assert more_tokens(run(calls, tokens_in=tokens)) == []
    assert more_tokens(run([10.0], quota, tokens_in=5000)) == []


def test_calls_at_once_are_counted() -> None:
    """A call that ends makes room for the next; without Redis shares may add up to more."""
    assert more_at_once(run([0.0, 1.0, 3.0, 4.0])) == []
    assert more_at_once(run([0.0, 1.0, 2.0])) != []
    assert more_at_once(run([0.0, 1.0, 2.0], replace(QUOTA, faults=1))) == []


def test_the_calls_of_a_day_are_counted() -> None:
    """Late grants of the day before are left out; shares, and agents that ended, allow more."""
    quota = replace(QUOTA, rpm=0, rpd=3, days_s=(0.0, 20.0, 60.0))
    evening, morning = [1.0, 2.0, 19.0], [20.5, 30.0, 40.0, 50.0]

    assert above_the_day(run(evening + morning + [60.0], quota)) == []
    assert len(above_the_day(run([*evening, 19.5, *morning, 55.0], quota))) == 2
    assert above_the_day(run([*evening, 19.5], replace(quota, shares=True))) == []
    assert above_the_day(run([*evening, 19.5], quota, connected=False)) == []
    ended = {1: Incarnation(1, "agent-1", ended_s=10.0), 2: Incarnation(2, "agent-2", ended_s=70.0)}
    lost = replace(run([*evening, 19.5], quota), agents=ended, slots=1)
    assert above_the_day(lost) != []
    assert above_the_day(replace(lost, quota=replace(quota, faults=1))) == []


def test_calls_of_an_agent_that_stood_still_are_left_out() -> None:
    """The ledger took it for lost and gave its seats to others."""
    frozen = Incarnation(1, "agent-1", stalls=[(1.0, 9.0)])
    calls = run([0.0, 1.0, 2.0])

    assert more_at_once(replace(calls, agents={1: frozen})) == []
    assert more_at_once(replace(calls, agents={1: replace(frozen, stalls=[(30.0, 40.0)])})) != []
