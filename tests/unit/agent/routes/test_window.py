"""The outcomes that stop a route: a run of failures, or half of the last 200."""

import pytest

from docllm.agent.routes.window import LAST, MIN_OUTCOMES, OLD_S, OutcomeWindow, run_for


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


def test_a_run_of_failures_is_bad() -> None:
    """The run's last failure is bad, and a success in between begins a new run."""
    assert not filled("x" * 9, run=10).is_bad
    assert filled("x" * 10, run=10).is_bad
    assert not filled("x" * 9 + "." + "x" * 9, run=10).is_bad


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


def test_a_cleared_window_knows_nothing() -> None:
    """A route that starts again is not stopped by its earlier failures."""
    window = filled("x" * 100, run=10)
    window.clear()

    assert (window.is_bad, window._failed, window._run) == (False, 0, 0)
