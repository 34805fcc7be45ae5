"""Handlers: the outcome of the default handler and of a person's own handlers."""

import asyncio
import math
from typing import Any

import orjson
import pytest

from docllm.agent.handlers import Context, DocumentError, GiveUpError, LockError, TryAgainError
from docllm.agent.handlers.calls.permits import CallEnd
from docllm.agent.handlers.calls.results import WaitedTooLongError
from docllm.agent.handlers.context import ContextCall
from docllm.agent.judge import Effect
from docllm.agent.judge.snooze_delay import MAX_BACK_OFF_S
from docllm.agent.ports import Call, CallFailed, Reply
from docllm.agent.ports.outcome import (
    Dead,
    Failure,
    Outcome,
    Released,
    Retry,
    Snooze,
    Spent,
    Succeeded,
)
from docllm.agent.process.containment import cancel
from docllm.agent.routes.evidence import by_outcome
from docllm.producer.text.printable import ShownFormatter
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.result.codec import VALUE, VALUE_ZLIB
from tests.support.handlers import (
    OPENAI,
    TASK,
    FreeLocks,
    completion,
    failure_of,
    handlers_harness,
    of_author,
    succeeded,
)

# ---- the default handler


def test_a_document_is_summarized() -> None:
    """The answer is stored as it came, with its tokens and its price."""
    tried = handlers_harness()

    outcome = succeeded(tried.run())

    assert outcome.body == completion().body
    assert (outcome.spent.tokens_in, outcome.spent.tokens_out, outcome.spent.cost_micro) == (
        10,
        2,
        12,
    )
    assert (
        orjson.loads(tried.llm.calls[0].body)["messages"][0]["content"] == "Summarize: Sales rose."
    )


def test_a_task_that_is_refused_alone_is_tried_again_and_counted() -> None:
    """A refusal counts only if other calls were answered meanwhile, as the agent tells.

    All tasks share the key, which may work at times.
    """
    answers: list[Reply | CallFailed] = [
        *(Reply(status, {}, b"") for status in (403, 404, 401)),
        CallFailed(ErrorClass.AUTH, "the proxy asks for a password"),
    ]

    assert [type(handlers_harness(answer).run()) for answer in answers] == [Snooze] * 4
    assert [type(handlers_harness(answer).run(refused_alone=True)) for answer in answers] == [
        Retry,
        Retry,
        Snooze,
        Snooze,
    ]


def test_an_openai_line_takes_a_cut_answer() -> None:
    """A cut answer of an OpenAI line is a success, and its finish_reason shows the cut.

    A docllm line is dead with advice instead.
    """
    cut = completion(reason="length")

    assert isinstance(handlers_harness(cut).run(OPENAI), Succeeded)
    assert "max_tokens" in failure_of(handlers_harness(cut).run()).text


def test_a_document_that_may_not_be_read_is_dead() -> None:
    """Without an allowed root no file is read and no call is made; the error names the setting."""
    tried = handlers_harness()

    outcome = tried.run(TASK | {"input": {"uri": "file:///etc/hostname"}})

    assert isinstance(outcome, Dead)
    assert outcome.failure.error_class == "DOCUMENT_REFUSED"
    assert "DOCLLM_DOCUMENT_ROOTS" in outcome.failure.text
    assert tried.llm.calls == []


def test_a_type_without_prompt_and_handler_is_dead() -> None:
    """A task without prompt and handler is dead without a call, and its route learns nothing.

    Otherwise a probe would open the route.
    """
    tried = handlers_harness()

    outcome = tried.run({"id": "a", "type": "invoice", "input": {"text": "x"}})

    assert isinstance(outcome, Dead)
    assert outcome.failure.error_class == "NO_PROMPT"
    assert "invoice" in outcome.failure.text
    assert tried.llm.calls == []
    assert by_outcome(outcome).effect is Effect.NONE


def test_a_record_that_is_no_line_is_dead() -> None:
    """A value that cannot be read is undecodable, and raises nothing."""
    outcome = handlers_harness().run(b"{")

    assert isinstance(outcome, Dead)
    assert outcome.disposition == "undecodable"


def test_large_replies_are_parsed_apart() -> None:
    """Replies above a mebibyte are judged in the other executor, with the same outcome."""
    small, large = (
        handlers_harness(completion("x" * 1000)),
        handlers_harness(completion("x" * (1 << 20))),
    )

    assert isinstance(small.run(), Succeeded)
    assert isinstance(large.run(), Succeeded)
    assert (small.apart.calls, large.apart.calls) == (0, 1)


# ---- the budget


# ---- custom handlers


def test_a_handlers_value_is_the_result() -> None:
    """A handler may make several calls and return a JSON value.

    The calls are added up, and have separate ids.
    """

    async def twice(context: Context) -> dict[str, str]:
        body = {"model": "m", "messages": [{"role": "user", "content": await context.document()}]}
        first, second = await context.complete(body), await context.complete(body)
        return {"both": first.text + second.text}

    tried = handlers_harness(document=twice)
    outcome = succeeded(tried.run(counted_before=1))

    assert (outcome.body, outcome.codec) == (b'{"both":"Fine.Fine."}', VALUE)
    assert (outcome.spent.tokens_in, outcome.spent.cost_micro) == (20, 24)
    assert [call.request_id for call in tried.llm.calls] == ["b/a%2F1#2", "b/a%2F1#2.2"]


def test_a_large_value_is_packed() -> None:
    """A value of 4 KiB or more is compressed."""

    async def long(context: Context) -> str:
        return "x" * 5000

    outcome = succeeded(handlers_harness(document=long).run())

    assert outcome.codec == VALUE_ZLIB


def test_a_death_that_a_handler_returns_has_the_cost_of_its_calls() -> None:
    """A death that a handler returns includes the cost of its calls."""

    async def decide(context: Context) -> Outcome:
        await context.complete({"messages": []})
        return Dead(Failure(ErrorClass.BAD_REQUEST, "not an invoice"), Spent())

    outcome = handlers_harness(document=decide).run()

    assert isinstance(outcome, Dead)
    assert outcome.spent.tokens_in == 10


def test_a_handler_may_name_a_documents_failure_with_plain_text() -> None:
    """A handler of a person need not know the enum; the class has the same effect."""

    async def fail(context: Context) -> None:
        raise DocumentError("DOCUMENT_REFUSED", "page 2 is torn")  # type: ignore[arg-type]

    outcome = handlers_harness(document=fail).run()

    assert isinstance(outcome, Dead)
    assert (failure_of(outcome).error_class, failure_of(outcome).text) == (
        "DOCUMENT_REFUSED",
        "page 2 is torn",
    )


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"the answer": Spent}, "what JSON cannot hold"),
        ({"pages": [{"score": math.nan}]}, "result['pages'][0]['score'] is nan"),
    ],
)
def test_a_value_that_is_no_json_is_the_handlers_error(result: object, text: str) -> None:
    """It would be lost, or stored as null, as if the handler had found nothing."""

    async def odd(context: Context) -> object:
        return result

    failure = failure_of(handlers_harness(document=odd).run())

    assert failure.error_class == "HANDLER"
    assert text in failure.text


def test_a_call_with_a_number_that_json_cannot_hold_is_not_made() -> None:
    """The provider would get null, and the call would be paid."""

    async def odd(context: Context) -> object:
        return await context.complete({"messages": [], "temperature": math.nan})

    harness = handlers_harness(document=odd)
    failure = failure_of(harness.run())

    assert "body['temperature'] is nan" in failure.text
    assert not harness.llm.calls


class PanicError(BaseException):
    """A Rust library's panic, as Python sees it."""


class UnreadableError(Exception):
    """An error whose message cannot be created."""

    def __str__(self) -> str:
        raise PanicError("no message")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("broken \n sk-abcdefgh"), "ValueError: broken ***"),
        (TimeoutError("mine"), "TimeoutError: mine"),
        (AssertionError(), "AssertionError: "),
        (PanicError("index out of bounds"), "PanicError: index out of bounds"),
        (SystemExit(0), "SystemExit: 0"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
        (GeneratorExit(), "GeneratorExit: "),
        (MemoryError("no room"), "MemoryError: no room"),
        (UnreadableError(), "UnreadableError: (its message cannot be read: PanicError)"),
        (BaseExceptionGroup("both", [SystemExit(3), ValueError("x")]), "SystemExit: 3"),
        (
            asyncio.CancelledError(),
            "CancelledError: something that the handler waited for was cancelled",
        ),
    ],
)
def test_any_error_of_a_handler_is_its_counted_failure(error: BaseException, message: str) -> None:
    """Whatever a handler raises is a counted failure of its task.

    Uncounted, the task would run again at once and pay for each attempt. Unguarded, the error would
    end the agent.
    """

    async def fail(context: Context) -> None:
        await context.complete({"messages": []})
        raise error

    tried = handlers_harness(document=fail)
    ended = [tried.run(counted_before=attempt) for attempt in (0, 4)]

    assert [type(outcome) for outcome in ended] == [Retry, Dead]
    assert failure_of(ended[0]) == Failure(ErrorClass.HANDLER, message.strip())
    assert [outcome.spent.tokens_in for outcome in ended] == [10, 10]


class Traced:
    """A trace of an attempt and of its calls, which says what it was told."""

    trace_id, traceparent = "4bf9", "00-4bf9-01"

    def __init__(self) -> None:
        self.told: list[object] = []

    def call(self, route: str, model: str) -> "Traced":
        self.told.append((route, model))
        return self

    def ended(self, end: CallEnd) -> None:
        self.told.append(end)


def test_calls_are_told_to_the_trace_and_the_log_names_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The provider gets what the trace says is to be sent."""

    async def handler(context: Context) -> object:
        context.log.warning("look")
        return await context.complete({"model": "m", "messages": []})

    trace = Traced()
    harness = handlers_harness(t=handler)

    succeeded(harness.run(TASK | {"type": "t"}, trace=trace))

    began, end = trace.told
    assert began == ("default", "m")
    assert isinstance(end, CallEnd)
    assert isinstance(end.outcome, Succeeded)
    assert harness.llm.calls[0].traceparent == "00-4bf9-01"
    assert {getattr(record, "trace_id", None) for record in caplog.records} == {"4bf9"}


def test_the_log_says_once_where_a_handler_failed(caplog: pytest.LogCaptureFixture) -> None:
    """The log has task, class, file and line of a handler's failure, with masked text."""

    async def fail(context: Context) -> None:
        raise KeyError(secret)

    secret = f"sk-{'abcdefgh'}"
    tried = handlers_harness(document=fail)
    for _ in range(3):
        tried.run()

    (record,) = caplog.records
    first, frame, _ = ShownFormatter("%(message)s").format(record).split("\n")
    line = fail.__code__.co_firstlineno + 1
    place = f"tests/unit/agent/handlers/test_runner.py:{line}"
    failed = f"handler of type document failed at {place}: KeyError: '***'"
    assert first == f"task 7 (b/a/1): {failed} [handler_fails]"
    assert frame.lstrip() == f'File "{__file__}", line {line}, in fail'
    assert "abcdefgh" not in caplog.text


def test_the_log_says_where_errors_were_raised_together(caplog: pytest.LogCaptureFixture) -> None:
    """An error that a handler collected into a group has no place of its own."""

    async def fail(context: Context) -> None:
        raise ExceptionGroup("pages failed", [ValueError("page 1"), ValueError("page 2")])

    outcome = handlers_harness(document=fail).run(counted_before=4)

    place = f"tests/unit/agent/handlers/test_runner.py:{fail.__code__.co_firstlineno + 1}"
    assert f"failed at {place}: ValueError: page 1" in caplog.text
    assert "in fail" in failure_of(outcome).traceback


@pytest.mark.parametrize("error", [GiveUpError("junk"), TryAgainError("closed")])
def test_a_handlers_decision_is_no_error_of_its_code(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """What a handler raises on purpose is stored with its task, and not logged."""

    async def decide(context: Context) -> None:
        raise error

    handlers_harness(document=decide).run()

    assert caplog.records == []


@pytest.mark.parametrize(("model", "is_priced"), [("m", True), ("unpriced", False)])
def test_a_call_that_is_killed_counts_as_its_estimate(model: str, *, is_priced: bool) -> None:
    """A killed call may be billed: it costs what its input does, after what was paid before."""
    noted: list[Spent] = []
    tried = handlers_harness()

    async def killed(call: Call) -> Reply | CallFailed:
        tried.llm.calls.append(call)
        task = asyncio.current_task()
        assert task is not None
        cancel(task)
        await asyncio.sleep(0)
        raise AssertionError("the attempt is cancelled")

    async def call_twice(context: Context) -> None:
        await context.complete({"model": "m", "messages": []})
        tried.llm.complete = killed  # type: ignore[method-assign]
        await context.complete({"model": model, "messages": []})

    tried = handlers_harness(document=call_twice)
    outcome = tried.run(note_spent=noted.append)

    assert outcome == Released(noted[-1])
    estimate = len(tried.llm.calls[1].body) // 4
    answered = noted[0]
    assert (answered.cost_micro, answered.unsure_micro) == (12, 0)
    assert [(spent.cost_micro, spent.unsure_micro) for spent in noted[1:]] == (
        [(12 + estimate, estimate)] if is_priced else []
    )
    assert (noted[-1].tokens_in, noted[-1].tokens_out) == (10, 2)


def test_a_handler_that_cancels_its_own_attempt_fails_and_counts() -> None:
    """Given back uncounted, its task would run again at once, without end."""

    async def end(context: Context) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    assert failure_of(handlers_harness(document=end).run()).error_class == "HANDLER"


def test_errors_in_groups_within_groups_are_the_handlers_failure() -> None:
    """A failure to read them would count as a bug of ours, which is not counted."""

    async def fail(context: Context) -> None:
        error: Exception = ValueError("inmost")
        for _ in range(5_000):
            error = ExceptionGroup("g", [error])
        raise error

    assert failure_of(handlers_harness(document=fail).run()) == Failure(
        ErrorClass.HANDLER, "ValueError: inmost"
    )


def test_a_handler_that_outlasts_its_claim_is_ended() -> None:
    """A handler that never returns is ended some seconds after its claim ran out."""

    async def hang(context: Context) -> None:
        await asyncio.get_running_loop().create_future()

    outcome = handlers_harness(document=hang).run(left_s=-5.0)

    assert failure_of(outcome) == Failure(
        ErrorClass.HANDLER, "the handler did not return within its claim"
    )


def test_a_second_call_is_not_made_when_the_lease_has_run_out() -> None:
    """A handler that makes several calls is stopped between two once the lease ran out."""

    async def ask_twice(context: Context) -> str:
        await context.complete({"messages": []})
        tried.leased = False
        return (await context.complete({"messages": []})).text

    tried = handlers_harness(document=ask_twice)

    outcome = tried.run()

    assert isinstance(outcome, Released)
    assert outcome.spent.tokens_in == 10
    assert len(tried.llm.calls) == 1


# ---- locks


class NotedLocks(FreeLocks):
    """Locks that are free, or not, and a list of what was done."""

    def __init__(self, *, free: bool = True) -> None:
        super().__init__()
        self._free = free
        self.done: list[object] = []

    def ask(self, name: str) -> None:
        if name in self.done:
            raise LockError(f"this attempt holds the lock {name} already")
        self.done.append(name)

    async def wait(self, name: str, wait_s: float, *, once: bool = False) -> int | None:
        self.done.append("once" if once else wait_s)
        return await super().wait(name, wait_s) if self._free else None

    def give_back(self, name: str) -> None:
        self.done.append(f"not {name}")


async def locking(context: Context) -> int:
    async with context.lock("account 7") as held:
        held.check()
        return held.fence


def test_a_handler_holds_a_lock() -> None:
    """The handler gets the lock's number, and waits for half of its time at most."""
    locks = NotedLocks()

    outcome = succeeded(handlers_harness(document=of_author(locking)).run(locks=locks))

    assert outcome.body == b"1"
    assert locks.done == ["account 7", 30.0, "not account 7"]


def test_a_lock_that_is_not_free_in_time_costs_no_attempt() -> None:
    """The task comes back after a pause, and waits no longer under this attempt."""
    locks = NotedLocks(free=False)

    outcome = handlers_harness(document=of_author(locking)).run(locks=locks)

    assert isinstance(outcome, Snooze)
    assert outcome.failure.error_class == ErrorClass.COME_BACK
    assert locks.done[-1] == "not account 7"


@pytest.mark.parametrize("resource", ["lock", "limit"])
def test_a_handler_that_tries_once_does_not_run_in_a_loop(resource: str) -> None:
    """Without its lock or limit, its task begins with longer pauses, of a minute at most."""

    async def once(context: Context) -> None:
        async with getattr(context, resource)("crm", wait_s=0):
            raise AssertionError("somebody else has it")

    harness = handlers_harness(document=of_author(once))
    harness.uses.seats = 0
    at_s, begun = 0.0, 0
    while at_s < 3600:
        outcome = harness.run(locks=NotedLocks(free=False), snoozes=begun)
        assert isinstance(outcome, Snooze)
        assert 1 <= outcome.delay_s <= MAX_BACK_OFF_S
        at_s, begun = at_s + outcome.delay_s, begun + 1

    assert 60 <= begun <= 120


@pytest.mark.parametrize(("wait_s", "waited"), [(5, 5), (50, 30.0), (0, "once"), (None, 30.0)])
def test_a_handler_says_how_long_it_waits_for_a_lock(wait_s: float | None, waited: object) -> None:
    """Half of its time at most; it may go on without a lock that it did not get."""

    async def patient(context: Context) -> str:
        try:
            async with context.lock("account 7", wait_s=wait_s):
                return "held"
        except WaitedTooLongError:
            return "not held"

    locks = NotedLocks(free=False)

    outcome = succeeded(handlers_harness(document=of_author(patient)).run(locks=locks))

    assert outcome.body == b'"not held"'
    assert locks.done == ["account 7", waited, "not account 7"]


@pytest.mark.parametrize("wait_s", [-1, float("nan")])
def test_a_wait_that_is_no_time_is_the_handlers_failure(wait_s: float) -> None:
    """Nothing is asked for."""

    async def bad(context: Context) -> None:
        async with context.lock("a", wait_s=wait_s):
            raise AssertionError("nobody waits so long")

    locks = NotedLocks()

    failure = failure_of(handlers_harness(document=of_author(bad)).run(locks=locks))

    assert "it is a number of seconds from 0 on" in failure.text
    assert locks.done == []


def test_no_lock_is_held_without_a_lease() -> None:
    """Another agent may have the task, and the lock, by then."""
    tried, locks = handlers_harness(document=of_author(locking)), NotedLocks()
    tried.leased = False

    assert tried.run(locks=locks) == Released()
    assert locks.done[-1] == "not account 7"


def test_a_handler_can_ask_whether_it_lost_its_lock() -> None:
    """Before it changes the resource, for example."""

    async def slow(context: Context) -> int:
        async with context.lock("account 7") as held:
            tried.leased = False
            held.check()
        raise AssertionError("the lock is lost")

    tried, locks = handlers_harness(document=of_author(slow)), NotedLocks()

    assert tried.run(locks=locks) == Released()
    assert locks.done[-1] == "not account 7"


@pytest.mark.parametrize("name", ["", "x" * 192, " a", "a\n", 7, "\ud800"])
def test_a_bad_name_of_a_lock_is_the_handlers_failure(name: Any) -> None:
    """The text says what a name is."""

    async def bad(context: Context) -> None:
        async with context.lock(name):
            raise AssertionError("nothing has this name")

    locks = NotedLocks()

    failure = failure_of(handlers_harness(document=of_author(bad)).run(locks=locks))

    assert failure.error_class == "HANDLER"
    assert "LockError: the name of a lock" in failure.text
    assert locks.done == []


def test_a_lock_that_is_taken_twice_stays_with_the_first() -> None:
    """The inner one fails; the outer one is given back once."""

    async def twice(context: Context) -> None:
        async with context.lock("a"), context.lock("a"):
            raise AssertionError("it would wait for itself")

    locks = NotedLocks()

    failure = failure_of(handlers_harness(document=of_author(twice)).run(locks=locks))

    assert "holds the lock a already" in failure.text
    assert locks.done == ["a", 30.0, "not a"]


# ---- named limits


async def limited(context: Context) -> str:
    async with context.limit("crm"):
        pass
    return "used"


def test_a_handler_uses_what_is_limited() -> None:
    """The use ends with the block, and waits for half of the attempt's time at most."""
    tried = handlers_harness(document=of_author(limited))

    assert isinstance(tried.run(), Succeeded)

    assert (tried.uses.seats, tried.uses.waits_s) == (1, [30.0])


def test_a_use_that_may_not_begin_costs_no_attempt() -> None:
    """The task runs again after a pause."""
    tried = handlers_harness(document=of_author(limited))
    tried.uses.seats = 0

    assert isinstance(tried.run(), Snooze)
    assert tried.uses.seats == 0


def test_no_use_begins_without_a_lease() -> None:
    """It is given back."""
    tried = handlers_harness(document=of_author(limited))
    tried.leased = False

    assert tried.run() == Released()
    assert tried.uses.seats == 1


def test_an_unknown_limit_is_the_handlers_failure() -> None:
    """The text says which sections there are."""

    async def unknown(context: Context) -> None:
        async with context.limit("cmr"):
            raise AssertionError("there is no such limit")

    failure = failure_of(handlers_harness(document=of_author(unknown)).run())

    assert "LimitError: the settings have no limit named 'cmr'" in failure.text


def test_the_end_of_an_attempt_ends_its_uses() -> None:
    """A task that the handler left behind may hold one for ever."""

    async def leaves(context: Context) -> str:
        call = context._attempt.call
        number = await call(ContextCall.TAKE_LIMIT, name="crm", wait_s=1.0)
        await call(ContextCall.GIVE_BACK_LIMIT, number=number + 1)
        return "left"

    tried = handlers_harness(document=of_author(leaves))

    assert isinstance(tried.run(), Succeeded)
    assert tried.uses.seats == 1
