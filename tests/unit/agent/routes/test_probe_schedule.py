"""A stopped route is probed by one call at a time, paced, limited, and not by one task only."""

import pytest

from docllm.agent.routes.answer_times import AnswerTimes
from docllm.agent.routes.probe_schedule import ProbeSchedule


def probes(*, jitter: float = 0.5, times: AnswerTimes | None = None) -> ProbeSchedule:
    """Return the probes of a route that stopped at 100 s."""
    schedule = ProbeSchedule(
        times=times or AnswerTimes(), timeout_s=600.0, park_s=60.0, jitter=lambda: jitter
    )
    schedule.begin(100.0, parked=False)
    return schedule


@pytest.mark.parametrize(("jitter", "first_s"), [(0.0, 101.8), (1.0, 102.2)])
def test_agents_do_not_probe_in_step(jitter: float, first_s: float) -> None:
    """Each interval varies by a tenth to either side, so agents do not probe in step."""
    assert probes(jitter=jitter).next_at_s == pytest.approx(first_s)


@pytest.mark.parametrize(
    ("answered_in_s", "limit_s"),
    [
        ([], 600.0),
        ([0.1, 0.2], 2.0),
        ([0.2, 5.0, 0.3], 20.0),
        ([200.0], 600.0),
        ([5.0] + [1.0] * 100, 4.0),
    ],
)
def test_a_probe_ends_long_before_a_calls_own_limit(
    answered_in_s: list[float], limit_s: float
) -> None:
    """A probe may take four times the slowest recent answer, at least 2 s.

    It never takes longer than a call may. If no answer is known, that is its limit.
    """
    times = AnswerTimes()
    for duration_s in answered_in_s:
        times.add(duration_s)
    schedule = probes(times=times)

    assert schedule.start(102.0) == limit_s


def test_a_turn_that_ran_out_is_not_revived() -> None:
    """An agent that slept past its turn's lease leaves the probe to the others."""
    schedule = probes()
    schedule.note_turn(110.0, until_s=115.0)

    assert (schedule.task_due(114.9), schedule.task_due(115.0)) == (True, False)
