"""Attempts that end without an outcome, by a bug of ours or a cancellation, keep their cost."""

import asyncio

import pytest

from docllm.agent.inflight.delivery import Delivery
from docllm.agent.ports.outcome import Outcome, Released, Snooze, Spent
from docllm.schemas.task.failures import ErrorClass
from tests.support.routes import routes
from tests.support.slots import Act, SlotsHarness

PAID = Spent(model="m", tokens_in=10, call_id="b/a#1")


class PanicError(BaseException):
    """A Rust library's panic, as Python sees it."""


def ended(act: Act, *, cancel: bool = False) -> Outcome:
    """Run an attempt that behaves so; return its settled outcome."""
    (outcome,) = SlotsHarness(routes(), act).run(cancel=cancel)
    return outcome


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        PanicError("x"),
        SystemExit(0),
        MemoryError(),
        asyncio.CancelledError(),
        GeneratorExit(),
    ],
)
def test_a_bug_of_ours_is_settled_with_the_cost_so_far(error: BaseException) -> None:
    """A bug of ours is settled with the attempt's cost.

    If the task were silently given back, it would run again at once and pay again. The ledger
    counts bugs.
    """

    async def act(delivery: Delivery) -> Outcome:
        delivery.note_spent(PAID)
        raise error

    outcome = ended(act)

    assert isinstance(outcome, Snooze)
    assert (outcome.failure.error_class, outcome.failure.text) == (
        ErrorClass.INTERNAL,
        type(error).__name__,
    )
    assert outcome.failure.traceback.endswith(", in act\n    raise error")
    assert outcome.spent == PAID


def test_a_cancelled_attempt_is_released_with_the_cost_so_far() -> None:
    """A cancelled attempt is given back with its cost, for example when an agent drains."""

    async def act(delivery: Delivery) -> Outcome:
        delivery.note_spent(PAID)
        await asyncio.Event().wait()
        raise AssertionError("it is cancelled")

    assert ended(act, cancel=True) == Released(PAID)
