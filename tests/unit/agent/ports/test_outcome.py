"""The ends of an attempt, as values."""

from docllm.agent.ports.outcome import Spent


def test_the_calls_of_an_attempt_add_up() -> None:
    """Counts and costs are sums; the last call gives its model, its id and the duration."""
    first = Spent(
        model="m",
        tokens_in=12,
        tokens_out=3,
        cost_micro=900,
        call_id="b/t#1",
        duration_ms=1200,
        tokens_cached=8,
        unsure_micro=100,
    )
    last = Spent(
        model="n",
        tokens_in=10,
        tokens_out=2,
        cost_micro=700,
        call_id="b/t#1.2",
        duration_ms=2000,
        tokens_cached=4,
        unsure_micro=50,
    )

    assert last.plus(first) == Spent(
        model="n",
        tokens_in=22,
        tokens_out=5,
        cost_micro=1600,
        call_id="b/t#1.2",
        duration_ms=2000,
        tokens_cached=12,
        unsure_micro=150,
    )
