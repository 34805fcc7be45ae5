"""A handler's own decisions, and the rules of its type."""

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import orjson
import pytest

from docllm.agent.handlers import ComeBackError, Context, GiveUpError, Handler, TryAgainError
from docllm.agent.handlers.decisions import MAX_STATE_BYTES
from docllm.agent.judge.tiers import IN_LEDGER, MAX_WAIT_S
from docllm.agent.ports import Reply
from docllm.agent.ports.outcome import (
    Dead,
    Failure,
    HandlerState,
    Moved,
    Outcome,
    Released,
    Retry,
    Snooze,
    Spent,
)
from docllm.schemas.settings.config import TypeConfig
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.waits import WaitReason
from tests.support.handlers import TASK, failure_of, handlers_harness, of_author, succeeded


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


AT, PAST = datetime(2030, 1, 1, tzinfo=UTC), datetime(1999, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("raised", [partial(TryAgainError, "x"), ComeBackError])
@pytest.mark.parametrize(
    ("wait", "text"),
    [
        ({"after_s": -1}, "after_s is -1; give a number of seconds from 0 on"),
        ({"after_s": float("nan")}, "after_s is nan"),
        ({"after_s": float("-inf")}, "after_s is -inf"),
        ({"after_s": 10**400}, "give a number of seconds"),
        ({"after_s": "5"}, "after_s is '5'"),
        ({"after_s": timedelta(seconds=5)}, "give a number of seconds"),
        ({"after_s": 1, "at": AT}, "not both"),
        ({"at": AT.replace(tzinfo=None)}, "give a datetime with a time zone"),
        ({"at": "2030-01-01T00:00:00Z"}, "give a datetime with a time zone"),
        ({"at": datetime.max.replace(tzinfo=UTC)}, "of the years 1000 to 2999"),
        ({"at": datetime.min.replace(tzinfo=timezone(timedelta(hours=2)))}, "years 1000 to 2999"),
    ],
)
def test_an_invalid_wait_is_a_counted_failure_that_says_what_to_do(
    raised: Callable[..., Exception], wait: dict[str, Any], text: str
) -> None:
    """The handler's own mistake: its task waits in a tier, and is dead after its attempts."""

    async def mistaken(context: Context) -> None:
        raise raised(**wait)

    harness = handlers_harness(document=of_author(mistaken))
    again, last = harness.run(), harness.run(counted_before=4)

    assert isinstance(again, Retry)
    assert again.failure.error_class == ErrorClass.HANDLER
    assert again.delay_s >= 30
    assert text in again.failure.text
    assert isinstance(last, Dead)


@pytest.mark.parametrize(
    ("after_s", "least_s"), [(3601.0, 3601.0), (2e6, 2e6), (float("inf"), MAX_WAIT_S)]
)
def test_a_wait_that_is_longer_than_each_tier_is_in_the_ledger(
    after_s: float, least_s: float
) -> None:
    """It would keep the other records of its topic waiting; a minute of spread is enough."""
    outcome = handlers_harness(document=raising(TryAgainError("x", after_s=after_s))).run()

    assert isinstance(outcome, Retry)
    assert outcome.tier == IN_LEDGER
    assert least_s <= outcome.delay_s <= least_s + 60


def test_a_handler_may_name_the_time_of_the_next_attempt() -> None:
    """The ledger compares it with its own clock; the delay of a tier is the least wait."""
    at = datetime(2030, 1, 31, 12, tzinfo=timezone(timedelta(hours=2)))
    outcome = handlers_harness(document=raising(TryAgainError("x", at=at))).run()
    last = handlers_harness(document=raising(TryAgainError("x", at=at))).run(counted_before=4)

    assert isinstance(outcome, Retry)
    assert (outcome.tier, outcome.at) == (IN_LEDGER, datetime(2030, 1, 31, 10, tzinfo=UTC))
    assert outcome.delay_s >= 30
    assert isinstance(last, Dead)


# ---- handlers that come back


def came_back(error: ComeBackError, **run: Any) -> Outcome:
    return handlers_harness(document=raising(error)).run(**run)


def test_a_handler_may_come_back_later() -> None:
    """The attempt does not count, and the state is kept."""
    outcome = came_back(ComeBackError(after_s=90, state={"job": 7}), counted_before=4)

    assert isinstance(outcome, Moved)
    assert (outcome.reason, outcome.key) == (WaitReason.TIME, "")
    assert outcome.failure.error_class == ErrorClass.COME_BACK
    assert (outcome.delay_s, outcome.at) == (90.0, None)
    assert outcome.state == HandlerState(b'{"job":7}', 1)


@pytest.mark.parametrize(
    ("wait", "delay_s"),
    [({"after_s": 0}, 1.0), ({"after_s": 0.2}, 1.0), ({"at": datetime(2030, 1, 1, tzinfo=UTC)}, 1)],
)
def test_the_shortest_wait_is_a_second(wait: dict[str, Any], delay_s: float) -> None:
    """A handler that polls without a pause would keep the ledger busy."""
    outcome = came_back(ComeBackError(**wait))

    assert isinstance(outcome, Moved)
    assert (outcome.delay_s, outcome.at) == (delay_s, wait.get("at"))


def test_without_a_state_the_former_one_stays() -> None:
    """The handler has nothing new to keep."""
    outcome = came_back(ComeBackError(after_s=1), state=HandlerState(b'{"a":1}', 3))

    assert isinstance(outcome, Moved)
    assert outcome.state == HandlerState(b'{"a":1}', 4)


@pytest.mark.parametrize("kept", [None, HandlerState(b'{"seen":["x"]}', 2)])
def test_the_next_run_finds_the_state(kept: HandlerState | None) -> None:
    """The first run finds an empty dict."""

    async def read(context: Context) -> Any:
        return context.state

    outcome = succeeded(handlers_harness(document=read).run(state=kept))

    assert orjson.loads(outcome.body) == ({} if kept is None else {"seen": ["x"]})


def test_a_handler_that_comes_back_for_ever_is_given_up() -> None:
    """After `max_come_backs` of its type."""
    harness = handlers_harness(
        types={"document": TypeConfig(max_come_backs=2)},
        document=raising(ComeBackError(after_s=1)),
    )
    last, over = (harness.run(state=HandlerState(b"{}", number)) for number in (1, 2))

    assert isinstance(last, Moved)
    assert isinstance(over, Dead)
    assert over.failure.error_class == ErrorClass.HANDLER_GAVE_UP
    assert "has come back 2 times, the most that max_come_backs of type document" in (
        over.failure.text
    )


@pytest.mark.parametrize(
    ("state", "error", "text"),
    [
        ([1], TypeError, "state is a list; give a dict"),
        ({"a": {1, 2}}, TypeError, "state has what JSON cannot hold"),
        ({1: 2}, TypeError, "text keys"),
        ({"a": float("nan")}, ValueError, "state['a'] is nan"),
        ({"a": "x" * MAX_STATE_BYTES}, ValueError, "at most 65,536 are kept"),
    ],
)
def test_a_state_that_cannot_be_kept_is_refused(
    state: Any, error: type[Exception], text: str
) -> None:
    """Where the handler raises it."""
    with pytest.raises(error, match=re.escape(text)):
        ComeBackError(after_s=1, state=state)


@pytest.mark.parametrize("error", [TryAgainError("x", at=PAST), ComeBackError(at=PAST)])
def test_a_time_that_has_passed_is_no_loop(error: Exception) -> None:
    """A retry waits as long as its tier, and a come-back a second."""
    outcome = handlers_harness(document=raising(error)).run()

    assert isinstance(outcome, Retry | Moved)
    assert outcome.delay_s >= (30 if isinstance(outcome, Retry) else 1)


def test_the_largest_state_is_kept() -> None:
    """Of 64 KiB as JSON."""
    state = {"a": "x" * (MAX_STATE_BYTES - len('{"a":""}'))}

    assert len(ComeBackError(after_s=1, state=state).state_json or b"") == MAX_STATE_BYTES


def test_a_come_back_needs_a_time() -> None:
    """A handler that knows none has failed."""
    with pytest.raises(ValueError, match="say when"):
        ComeBackError(state={})


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
