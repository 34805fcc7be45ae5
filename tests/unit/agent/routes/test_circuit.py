"""A run of failures, or half of the last 200, stops a route; each change is reported once."""

import pytest

from docllm.agent.routes.circuit import (
    LAST,
    MIN_OUTCOMES,
    OLD_S,
    Circuit,
    OutcomeWindow,
    run_for,
)


def circuit(run: int = 3) -> tuple[Circuit, list[bool]]:
    """Return a circuit, and the changes that it has reported."""
    changes: list[bool] = []
    return Circuit(run=run, changed=changes.append), changes


def test_failures_stop_it_and_a_probe_decides() -> None:
    """The circuit stops at the run's last failure and opens at a successful probe.

    A failed probe leaves it stopped.
    """
    breaker, changes = circuit()
    for _ in range(3):
        assert not breaker.stopped
        breaker.report(0.0, failed=True)
    assert (breaker.stopped, changes) == (True, [True])

    breaker.report(2.0, failed=True)
    assert (breaker.stopped, changes) == (True, [True])
    breaker.report(4.0, failed=False)

    assert (breaker.stopped, changes) == (False, [True, False])


def test_a_circuit_starts_again_with_an_empty_window() -> None:
    """The failures that stopped a circuit do not count towards its next stop."""
    breaker, changes = circuit()
    for failed in (True, True, True, False, True, True):
        breaker.report(0.0, failed=failed)
    assert not breaker.stopped

    breaker.report(0.0, failed=True)

    assert changes == [True, False, True]


def test_a_circuit_can_be_stopped_and_started_from_outside() -> None:
    """A park, a resume or the fleet changes the state without an outcome.

    Doing it twice changes nothing.
    """
    breaker, changes = circuit()
    breaker.stop()
    breaker.stop()
    assert (breaker.stopped, changes) == (True, [True])

    breaker.resume()
    breaker.resume()
    assert (breaker.stopped, changes) == (False, [True, False])


def test_successes_keep_it_going() -> None:
    """Successes keep the circuit closed, however the failures are spread among them."""
    breaker, changes = circuit()
    for _ in range(500):
        for failed in (True, True, False, False, False):
            breaker.report(0.0, failed=failed)

    assert changes == []


def filled(pattern: str, *, run: int = 1000, at_s: float = 0.0) -> OutcomeWindow:
    """Return a window with a failure for each x."""
    window = OutcomeWindow(run=run)
    for letter in pattern:
        window.add(at_s, failed=letter == "x")
    return window


@pytest.mark.parametrize(("slots", "run"), [(1, 3), (3, 3), (7, 7), (10, 10), (500, 10)])
def test_the_run_that_stops_a_route_fits_its_slots(slots: int, run: int) -> None:
    """The run fits the slots: small agents learn early, a bad moment does not stop large ones."""
    assert run_for(slots) == run


@pytest.mark.parametrize(
    ("pattern", "bad"),
    [("x." * 25, True), ("x." * 24 + "x", False), ("x.." * 66, False), ("x." * 100, True)],
)
def test_half_of_many_is_bad(pattern: str, *, bad: bool) -> None:
    """At least 50 outcomes must be known, and at least half of them must be failures."""
    assert filled(pattern).is_bad is bad


def test_only_the_last_outcomes_count() -> None:
    """Newer outcomes push old ones out of the window."""
    window = filled("x." * 100 + "." * LAST)

    assert (window.is_bad, window._failed, len(window._ended)) == (False, 0, LAST)


def test_old_outcomes_do_not_count() -> None:
    """Failures older than a minute do not stop a quiet route; a run has no age limit."""
    window = filled("x." * MIN_OUTCOMES)
    window.add(OLD_S + 0.1, failed=True)
    assert not window.is_bad

    run = filled("xx", run=3)
    run.add(3600.0, failed=True)
    assert run.is_bad
