"""A handler's own decisions, and the rules of its type."""

import asyncio

import pytest

from docllm.agent.handlers import Context, GiveUpError, Handler, TryAgainError
from docllm.agent.ports import Reply
from docllm.agent.ports.outcome import Dead, Failure, Outcome, Released, Retry, Snooze, Spent
from docllm.schemas.settings.config import TypeConfig
from docllm.schemas.task.failures import ErrorClass
from tests.support.handlers import TASK, failure_of, handlers_harness, of_author


def raising(error: Exception) -> Handler:
    async def fail(context: Context) -> None:
        raise error

    return of_author(fail)


def test_a_handler_may_ask_for_another_attempt() -> None:
    """A requested attempt counts, waits in the smallest tier that fits, and exhausts the budget."""
    tried = handlers_harness(document=raising(TryAgainError("the archive is closed", after_s=120)))

    again, last = tried.run(), tried.run(counted_before=4)

    assert isinstance(again, Retry)
    assert (again.failure, again.tier) == (
        Failure(ErrorClass.HANDLER, "the archive is closed"),
        "5m",
    )
    assert again.delay_s == pytest.approx(330)
    assert isinstance(last, Dead)
    assert last.disposition == "exhausted"


@pytest.mark.parametrize("after_s", [-1, float("nan")])
def test_an_invalid_wait_is_refused(after_s: float) -> None:
    """An invalid wait is refused where the handler raises it."""
    with pytest.raises(ValueError, match="after_s"):
        TryAgainError("x", after_s=after_s)


def test_a_wait_without_end_is_a_day() -> None:
    """A requested wait is at most a day."""
    outcome = handlers_harness(document=raising(TryAgainError("x", after_s=float("inf")))).run()

    assert isinstance(outcome, Retry)
    assert outcome.delay_s == pytest.approx(86_400 * 1.1)


def test_a_handler_may_give_up() -> None:
    """A handler that gives up makes the task dead at once, with its words and an own class.

    The class tells it from an exhausted task.
    """

    class NotAnInvoiceError(GiveUpError):
        pass

    outcome = handlers_harness(document=raising(NotAnInvoiceError("no total in sk-abcdefgh"))).run()

    assert isinstance(outcome, Dead)
    assert (outcome.failure, outcome.disposition) == (
        Failure(ErrorClass.HANDLER_GAVE_UP, "no total in ***"),
        "permanent",
    )


def test_the_rules_of_a_type_decide_about_its_errors() -> None:
    """A type's rules decide which of its errors are retried, after which wait, or given up."""
    types = {
        "document": TypeConfig(retry=("KeyError",), delay_s=60.0),
        "other": TypeConfig(give_up=("KeyError",)),
    }
    missing = handlers_harness(
        types=types, document=raising(KeyError("total")), other=raising(KeyError("total"))
    )

    again, dead = missing.run(), missing.run(TASK | {"type": "other"})
    unnamed = handlers_harness(types=types, document=raising(ValueError("total"))).run()

    assert isinstance(again, Retry)
    assert again.tier == "5m"
    assert again.delay_s == pytest.approx(330)
    assert [failure_of(outcome).error_class for outcome in (again, dead, unnamed)] == [
        "HANDLER",
        "HANDLER_GAVE_UP",
        "HANDLER_GAVE_UP",
    ]
    assert isinstance(dead, Dead)
    assert isinstance(unnamed, Dead)


def test_a_types_wait_holds_for_its_calls_too() -> None:
    """A type's wait also delays failed calls; a refused call waits as the provider asks."""
    types = {"document": TypeConfig(delay_s=60.0)}

    failed, refused = (
        handlers_harness(Reply(500, {}, b""), types=types).run(),
        handlers_harness(Reply(429, {}, b""), types=types).run(),
    )

    assert isinstance(failed, Retry)
    assert failed.tier == "5m"
    assert isinstance(refused, Snooze)
    assert refused.delay_s < 2


def test_rules_of_errors_do_not_judge_calls() -> None:
    """Refused calls and documents keep their class under any rules: an outage kills no task."""
    types = {
        "document": TypeConfig(retry=("KeyError",), give_up=("CallRefusedError", "DocumentError"))
    }

    assert isinstance(handlers_harness(Reply(429, {}, b""), types=types).run(), Snooze)
    assert (
        failure_of(
            handlers_harness(types=types).run(TASK | {"input": {"uri": "file:///etc/hostname"}})
        ).error_class
        == "DOCUMENT_REFUSED"
    )


def test_a_handler_that_hangs_is_tried_again_whatever_its_rules() -> None:
    """An attempt that was ended is no handler error, so a hung handler is retried."""

    async def hang(context: Context) -> None:
        await asyncio.get_running_loop().create_future()

    outcome = handlers_harness(
        types={"document": TypeConfig(give_up=("TimeoutError",))}, document=hang
    ).run(left_s=-5.0)

    assert isinstance(outcome, Retry)


@pytest.mark.parametrize(("status", "kind"), [(429, Snooze), (503, Retry), (400, Dead)])
def test_calls_that_run_at_once_are_judged_as_one_alone(status: int, kind: type[Outcome]) -> None:
    """A refused call in a group of tasks is no handler error: a rate limit counts no attempt."""

    async def both(context: Context) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(context.complete({"messages": []}))
            group.create_task(asyncio.sleep(60))

    assert isinstance(handlers_harness(Reply(status, {}, b""), document=both).run(), kind)


def test_errors_that_come_together_are_judged_by_the_first() -> None:
    """For a group of errors, the text and rules of the first error inside apply."""
    outcome = handlers_harness(
        types={"document": TypeConfig(give_up=("KeyError",))},
        document=raising(ExceptionGroup("x", [KeyError("total"), ValueError()])),
    ).run()

    assert failure_of(outcome) == Failure(ErrorClass.HANDLER_GAVE_UP, "KeyError: 'total'")


@pytest.mark.parametrize(
    "outcome",
    [
        Released(),
        Retry(Failure(ErrorClass.HANDLER, ""), Spent(), "soon", 1.0),
        Snooze(Failure(ErrorClass.HANDLER, ""), Spent(), 1.0),
    ],
)
def test_a_handler_does_not_choose_tiers(outcome: Outcome) -> None:
    """A handler may return a success or a death, but the judge chooses tier and wait."""

    async def decide(context: Context) -> Outcome:
        return outcome

    assert "raise TryAgainError" in failure_of(handlers_harness(document=decide).run()).text
