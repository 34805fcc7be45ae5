"""The ends of an attempt, as values."""

import pytest

from docllm.agent.ports.outcome import Cancelled, Dead, Failure, Released, Spent
from docllm.schemas.task.failures import Disposition, ErrorClass


@pytest.mark.parametrize(
    ("spent", "called"),
    [
        (Spent(), False),
        (Spent(duration_ms=1200), False),
        (Spent(call_id="b/t#1"), True),
        (
            Spent(
                model="m",
                tokens_in=12,
                tokens_out=3,
                cost_micro=900,
                call_id="b/t#1",
                duration_ms=1200,
            ),
            True,
        ),
    ],
)
def test_an_attempt_with_a_trace_has_made_a_call(spent: Spent, called: bool) -> None:  # noqa: FBT001
    """A call may have been billed even if nobody knows its usage."""
    assert spent.has_called is called


def test_an_attempt_that_did_not_begin_costs_nothing() -> None:
    """Only the caller knows better."""
    assert Cancelled().spent == Released().spent == Spent()


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


def test_a_task_is_given_up_as_permanent_unless_the_judge_says_more() -> None:
    """Another attempt would fail alike."""
    death = Dead(Failure(ErrorClass.BAD_REQUEST, "400"), Spent())

    assert death.disposition is Disposition.PERMANENT
