"""How long the answers of a route take, and when a call takes suspiciously long."""

import pytest

from docllm.agent.routes.answer_times import MAX_LONG_S, MIN_LONG_S, RECENT, UNKNOWN_S, AnswerTimes


def test_a_route_without_answers_is_given_the_most_time() -> None:
    """Nothing is known of it yet."""
    times = AnswerTimes()

    assert not times.known
    assert (times.usual_s, times.slowest_s, times.long_s) == (UNKNOWN_S, 0.0, MAX_LONG_S)


@pytest.mark.parametrize(
    ("usual_s", "long_s"),
    [(0.1, MIN_LONG_S), (5.0, 15.0), (30.0, MAX_LONG_S), (60.0, 90.0)],
)
def test_suspicion_follows_the_usual_time_within_bounds(usual_s: float, long_s: float) -> None:
    """Quick routes get some seconds; slow routes get half as long again as usual."""
    times = AnswerTimes()
    times.add(usual_s)

    assert times.known
    assert times.long_s == pytest.approx(long_s)


def test_old_answers_are_forgotten() -> None:
    """A provider that became quick is judged by its quick answers."""
    times = AnswerTimes()
    times.add(500.0)
    for _ in range(RECENT):
        times.add(1.0)

    assert (times.usual_s, times.slowest_s) == (1.0, 1.0)
