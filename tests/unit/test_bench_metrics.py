"""What `bench metrics` measures alone, and how it compares runs that alternate."""

from bench import metrics


def test_metrics_alone_cost_something() -> None:
    """The loop goes through the same ports as an agent's calls, claims and settles."""
    assert 0 < metrics._own_ms(5_000) < 10


def test_all_runs_are_compared_with_all() -> None:
    """A pair that other load disturbed does not decide."""
    assert metrics._more_percent({False: [1.0, 1.0], True: [1.0, 1.5]}) == 25
