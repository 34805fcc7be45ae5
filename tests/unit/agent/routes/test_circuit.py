"""pybreaker holds the state, the window decides, and each change is reported once."""

from datetime import datetime, tzinfo
from typing import Self

import pybreaker
import pytest

from docllm.agent.routes.circuit import Circuit
from docllm.agent.routes.window import OutcomeWindow


def circuit(run: int = 3) -> tuple[Circuit, list[bool]]:
    """Return a circuit, and the changes that it has reported."""
    changes: list[bool] = []
    return Circuit(window=OutcomeWindow(run=run), changed=changes.append), changes


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


def test_the_machines_time_of_day_means_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backward clock jump by a day does not prevent a probe's outcome from counting."""

    class Yesterday(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls(2020, 1, 1, tzinfo=tz)

    breaker, _ = circuit(run=1)
    breaker.report(0.0, failed=True)
    monkeypatch.setattr(pybreaker, "datetime", Yesterday)

    breaker.report(2.0, failed=False)

    assert not breaker.stopped
