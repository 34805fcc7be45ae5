"""Handlers: the request that is made of a task, and the outcome of whatever a handler does."""

import asyncio
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from agent.handlers import Attempt, Context, Documents, GiveUpError, Handler, Handlers, Tools, TryAgainError
from agent.handlers.request import chat_body, request_id
from agent.outcome import VALUE, VALUE_ZLIB, Dead, Failure, Outcome, Released, Retry, Snooze, Spent, Succeeded
from agent.policy import tiers_of
from agent.ports import Call, CallFailed, Reply
from schemas.config import Price, TypeConfig
from schemas.lanes import InlineLane
from schemas.line import parse

TASK = {"id": "a/1", "prompt": "Summarize: {document}", "input": {"text": "Sales rose."}}
SCHEMA = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}
OPENAI = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": "hi"}]}}


def completion(content: str = "Fine.", reason: str = "stop") -> Reply:
    usage = {"prompt_tokens": 10, "completion_tokens": 2}
    choices = [{"message": {"role": "assistant", "content": content}, "finish_reason": reason}]
    return Reply(200, {}, orjson.dumps({"model": "m", "choices": choices, "usage": usage}))


class StillClock:
    def now_s(self) -> float:
        return 100.0

    def utc_s(self) -> float:
        return 1_800_000_000.0

    async def sleep(self, delay_s: float) -> None:
        raise AssertionError("nothing here waits")


@dataclass
class FakeLLM:
    replies: list[Reply | CallFailed]
    calls: list[Call] = field(default_factory=list)

    async def complete(self, call: Call) -> Reply | CallFailed:
        self.calls.append(call)
        return self.replies[min(len(self.calls), len(self.replies)) - 1]

    async def close(self) -> None:
        raise AssertionError("handlers close nothing")


class CountingLane(InlineLane):
    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, call: Any) -> Any:
        self.calls += 1
        return call()


@dataclass
class Bench:
    """Handlers over a fake LLM."""

    llm: FakeLLM
    handlers: Handlers
    apart: CountingLane

    def run(self, task: dict[str, Any] | bytes = TASK, **attempt: Any) -> Outcome:
        value = task if isinstance(task, bytes) else orjson.dumps(task)
        given = {"task_id": 7, "batch": "b", "attempt": 0, "max_attempts": 5, "snoozes": 0, "left_s": 60.0, **attempt}
        return asyncio.run(self.handlers.run(Attempt(value=value, **given)))


def bench(*replies: Reply | CallFailed, types: dict[str, TypeConfig] | None = None, **by_type: Handler) -> Bench:
    llm, apart = FakeLLM(list(replies) or [completion()]), CountingLane()
    tools = Tools(
        llm=llm,
        documents=Documents(roots=(), lane=InlineLane()),
        clock=StillClock(),
        apart=apart,
        jitter=lambda: 0.5,
        model="default-model",
        timeout_s=30.0,
        prices={"m": Price(1.0, 1.0)},
        tiers=tiers_of(("30s", "5m", "1h")),
        types=types or {},
    )
    return Bench(llm, Handlers(tools=tools, by_type=by_type), apart)


def body_of(task: dict[str, Any], document: str | None = None, model: str | None = None) -> dict[str, Any]:
    return chat_body(parse(orjson.dumps(task)), document, model)


def failure_of(outcome: Outcome) -> Failure:
    assert isinstance(outcome, Retry | Snooze | Dead)
    return outcome.failure


# ---- the request


def test_the_document_takes_the_placeholders_place_literally() -> None:
    """Braces in the prompt stay, and a placeholder inside the document is text."""
    task = TASK | {"prompt": 'As {"json": true}: {document} {x}'}

    body = body_of(task, document="about {document} \\1", model="m")

    assert body == {"model": "m", "messages": [{"role": "user", "content": 'As {"json": true}: about {document} \\1 {x}'}]}


def test_params_and_schema_go_into_the_body() -> None:
    """A schema becomes a response format; params are merged and win over it; the task's model wins over the default."""
    body = body_of(TASK | {"schema": SCHEMA, "params": {"temperature": 0}, "model": "mine"}, "d", "default")
    chosen = body_of(TASK | {"schema": SCHEMA, "params": {"response_format": {"type": "json_object"}}}, "d")

    assert body["response_format"] == {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    assert (body["temperature"], body["model"]) == (0, "mine")
    assert chosen["response_format"] == {"type": "json_object"}
    assert "model" not in chosen


def test_an_openai_lines_body_goes_as_it_is() -> None:
    """The configured model is put in only where the body names none."""
    named = OPENAI | {"body": OPENAI["body"] | {"model": "theirs", "seed": 3}}

    assert body_of(OPENAI, model="m") == {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    assert body_of(named, model="m") == named["body"]


def test_request_ids_are_encoded_and_short() -> None:
    """Batch and id are percent-encoded; a long one is cut, stays below 512 characters, and stays apart from its like."""
    long = [request_id(batch="b", key="\u00e9" * 190 + last, attempt="1") for last in "xy"]

    assert request_id(batch="my batch", key="a/1#\u00e9", attempt="3") == "my%20batch/a%2F1%23%C3%A9#3"
    assert [len(name) for name in long] == [512, 512]
    assert long[0] != long[1]
    assert all(name.isascii() and name.endswith("#1") for name in long)


def test_a_call_keeps_within_the_claim() -> None:
    """The time limit of a call is the smaller of the configured one and what is left of the claim."""
    ample, short = bench(), bench()

    ample.run(left_s=600)
    short.run(left_s=4)

    assert [ample.llm.calls[0].timeout_s, short.llm.calls[0].timeout_s] == [30, 4]
    assert ample.llm.calls[0].request_id == "b/a%2F1#1"


# ---- the default handler


def test_a_document_is_summarized() -> None:
    """The answer is stored as it came, with its tokens and its price."""
    tried = bench()

    outcome = tried.run()

    assert isinstance(outcome, Succeeded)
    assert outcome.body == completion().body
    assert (outcome.spent.tokens_in, outcome.spent.tokens_out, outcome.spent.cost_micro) == (10, 2, 12)
    assert orjson.loads(tried.llm.calls[0].body)["messages"][0]["content"] == "Summarize: Sales rose."


def test_a_failed_call_is_judged() -> None:
    """What the provider refuses is a snooze or a death, as the table says."""
    assert failure_of(bench(Reply(429, {}, b"")).run()).error_class == "RATE"
    assert failure_of(bench(Reply(400, {}, b"")).run()).error_class == "BAD_REQUEST"
    assert failure_of(bench(CallFailed("NETWORK", "x")).run()).error_class == "NETWORK"


def test_an_openai_line_takes_a_cut_answer() -> None:
    """The person finds finish_reason in the whole completion; a line of ours is dead with advice instead."""
    cut = completion(reason="length")

    assert isinstance(bench(cut).run(OPENAI), Succeeded)
    assert "max_tokens" in failure_of(bench(cut).run()).text


def test_a_document_that_may_not_be_read_is_dead() -> None:
    """Without an allowed root no file is read, no call is made, and the text says what to set."""
    tried = bench()

    outcome = tried.run(TASK | {"input": {"uri": "file:///etc/hostname"}})

    assert isinstance(outcome, Dead)
    assert outcome.failure.error_class == "DOCUMENT_REFUSED"
    assert "DOCLLM_DOCUMENT_ROOTS" in outcome.failure.text
    assert tried.llm.calls == []


def test_a_type_without_prompt_and_handler_is_dead() -> None:
    """Nothing can be done for it, and no call is made."""
    tried = bench()

    outcome = tried.run({"id": "a", "type": "invoice", "input": {"text": "x"}})

    assert isinstance(outcome, Dead)
    assert "invoice" in outcome.failure.text
    assert tried.llm.calls == []


def test_a_record_that_is_no_line_is_dead() -> None:
    """A value that cannot be read is undecodable, not an exception."""
    outcome = bench().run(b"{")

    assert isinstance(outcome, Dead)
    assert outcome.disposition == "undecodable"


def test_large_replies_are_parsed_apart() -> None:
    """Above a mebibyte the judge runs in the other lane, with the same outcome."""
    small, large = bench(completion("x" * 1000)), bench(completion("x" * (1 << 20)))

    assert isinstance(small.run(), Succeeded)
    assert isinstance(large.run(), Succeeded)
    assert (small.apart.calls, large.apart.calls) == (0, 1)


# ---- the budget


def test_the_rows_budget_is_the_only_one() -> None:
    """A bad answer is tried again while the row has attempts left, and exhausted with the last of them."""
    tried = bench(Reply(200, {}, b"{"))

    ended = [tried.run(attempt=attempt, max_attempts=3) for attempt in range(3)]

    assert [type(outcome) for outcome in ended] == [Retry, Retry, Dead]
    assert [outcome.tier for outcome in ended[:2] if isinstance(outcome, Retry)] == ["30s", "5m"]
    assert isinstance(ended[2], Dead)
    assert ended[2].disposition == "exhausted"


# ---- handlers of one's own


def test_a_handlers_value_is_the_result() -> None:
    """A handler may call more than once and return a JSON value; the calls are added up and told apart by their ids."""

    async def twice(context: Context) -> dict[str, str]:
        body = {"model": "m", "messages": [{"role": "user", "content": await context.document()}]}
        first, second = await context.complete(body), await context.complete(body)
        return {"both": first.text + second.text}

    tried = bench(document=twice)
    outcome = tried.run(attempt=1)

    assert isinstance(outcome, Succeeded)
    assert (outcome.body, outcome.codec) == (b'{"both":"Fine.Fine."}', VALUE)
    assert (outcome.spent.tokens_in, outcome.spent.cost_micro) == (20, 24)
    assert [call.request_id for call in tried.llm.calls] == ["b/a%2F1#2", "b/a%2F1#2.2"]


def test_a_large_value_is_packed() -> None:
    """A value of 4 KiB and more is compressed."""

    async def long(context: Context) -> str:
        return "x" * 5000

    outcome = bench(document=long).run()

    assert isinstance(outcome, Succeeded)
    assert outcome.codec == VALUE_ZLIB


def test_a_handler_may_decide_itself() -> None:
    """A success or a death that a handler returns is taken as it is."""
    decided = Dead(Failure("BAD_REQUEST", "not an invoice"), Spent())

    async def decide(context: Context) -> Outcome:
        return decided

    assert bench(document=decide).run() is decided


@pytest.mark.parametrize("error", [ValueError("broken \n sk-abcdefgh"), TimeoutError("mine"), AssertionError(), BrokenProcessPool()])
def test_a_handlers_error_becomes_an_outcome(error: Exception) -> None:
    """Whatever a handler raises is tried again, then exhausted; its own TimeoutError is an error like another."""

    async def fail(context: Context) -> None:
        raise error

    tried = bench(document=fail)
    ended = [tried.run(attempt=attempt) for attempt in (0, 4)]

    assert [type(outcome) for outcome in ended] == [Retry, Dead]
    assert failure_of(ended[0]).error_class == "HANDLER"
    assert failure_of(ended[0]).text.startswith(type(error).__name__)
    assert "abcdefgh" not in failure_of(ended[0]).text


def test_a_value_that_is_no_json_is_the_handlers_error() -> None:
    """A result that cannot be stored is an error of the handler, not of the settle."""

    async def odd(context: Context) -> object:
        return object()

    assert failure_of(bench(document=odd).run()).error_class == "HANDLER"


def test_what_was_spent_before_an_error_is_kept() -> None:
    """A handler that fails after a call has spent that call."""

    async def fail(context: Context) -> None:
        await context.complete({"messages": []})
        raise ValueError

    outcome = bench(document=fail).run()

    assert isinstance(outcome, Retry)
    assert outcome.spent.tokens_in == 10


@pytest.mark.parametrize("error", [MemoryError, SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_what_ends_the_process_or_the_task_passes(error: type[BaseException]) -> None:
    """These are not the handler's: nobody here may swallow them."""

    async def end(context: Context) -> None:
        raise error

    with pytest.raises(error):
        bench(document=end).run()


def test_a_handler_that_outlasts_its_claim_is_ended() -> None:
    """A handler that never returns gives its slot back some seconds after its claim has run out."""

    async def hang(context: Context) -> None:
        await asyncio.get_running_loop().create_future()

    outcome = bench(document=hang).run(left_s=-5.0)

    assert failure_of(outcome) == Failure("HANDLER", "the handler did not end within its claim")


# ---- what a handler may say, and the rules of its type


def raising(error: Exception) -> Handler:
    async def fail(context: Context) -> None:
        raise error

    return fail


def test_a_handler_may_ask_for_another_attempt() -> None:
    """It is counted, in the smallest tier that is long enough, and exhausted on the last attempt."""
    tried = bench(document=raising(TryAgainError("the archive is closed", after_s=120)))

    again, last = tried.run(), tried.run(attempt=4)

    assert isinstance(again, Retry)
    assert (again.failure, again.tier, again.delay_s) == (Failure("HANDLER", "the archive is closed"), "5m", pytest.approx(330))
    assert isinstance(last, Dead)
    assert last.disposition == "exhausted"


@pytest.mark.parametrize("after_s", [-1, float("nan")])
def test_a_wait_that_is_none_is_refused(after_s: float) -> None:
    """The handler hears of it where it raises."""
    with pytest.raises(ValueError, match="after_s"):
        TryAgainError("x", after_s=after_s)


def test_a_wait_without_end_is_a_day() -> None:
    """However long a handler asks to wait, the task comes back."""
    outcome = bench(document=raising(TryAgainError("x", after_s=float("inf")))).run()

    assert isinstance(outcome, Retry)
    assert outcome.delay_s == pytest.approx(86_400 * 1.1)


def test_a_handler_may_give_up() -> None:
    """The task is dead at once, with the handler's words, and with a class that tells it from an exhausted one."""

    class NotAnInvoiceError(GiveUpError):
        pass

    outcome = bench(document=raising(NotAnInvoiceError("no total in sk-abcdefgh"))).run()

    assert isinstance(outcome, Dead)
    assert (outcome.failure, outcome.disposition) == (Failure("HANDLER_GAVE_UP", "no total in ***"), "permanent")


def test_the_rules_of_a_type_decide_about_its_errors() -> None:
    """One error is tried again after the type's own wait, another gives the task up; other types have other rules."""
    types = {"document": TypeConfig(retry=("KeyError",), delay_s=60.0), "other": TypeConfig(give_up=("KeyError",))}
    missing = bench(types=types, document=raising(KeyError("total")), other=raising(KeyError("total")))

    again, dead = missing.run(), missing.run(TASK | {"type": "other"})
    unnamed = bench(types=types, document=raising(ValueError("total"))).run()

    assert isinstance(again, Retry)
    assert (again.tier, again.delay_s) == ("5m", pytest.approx(330))
    assert [failure_of(outcome).error_class for outcome in (again, dead, unnamed)] == ["HANDLER", "HANDLER_GAVE_UP", "HANDLER_GAVE_UP"]
    assert isinstance(dead, Dead)
    assert isinstance(unnamed, Dead)


def test_a_types_wait_holds_for_its_calls_too() -> None:
    """A failed call of a type that wants to wait waits as long; a refused one is told by the provider."""
    types = {"document": TypeConfig(delay_s=60.0)}

    failed, refused = bench(Reply(500, {}, b""), types=types).run(), bench(Reply(429, {}, b""), types=types).run()

    assert isinstance(failed, Retry)
    assert failed.tier == "5m"
    assert isinstance(refused, Snooze)
    assert refused.delay_s < 2


def test_rules_of_errors_do_not_judge_calls() -> None:
    """A refused call or document keeps its class, whatever the type's rules are: an outage kills no task."""
    types = {"document": TypeConfig(retry=("KeyError",), give_up=("CallRefusedError", "DocumentError"))}

    assert isinstance(bench(Reply(429, {}, b""), types=types).run(), Snooze)
    assert failure_of(bench(types=types).run(TASK | {"input": {"uri": "file:///etc/hostname"}})).error_class == "DOCUMENT_REFUSED"


def test_a_handler_that_hangs_is_tried_again_whatever_its_rules() -> None:
    """Only errors of its own are ruled by the type; an attempt that was ended is not one."""

    async def hang(context: Context) -> None:
        await asyncio.get_running_loop().create_future()

    outcome = bench(types={"document": TypeConfig(give_up=("TimeoutError",))}, document=hang).run(left_s=-5.0)

    assert isinstance(outcome, Retry)


@pytest.mark.parametrize(("status", "kind"), [(429, Snooze), (503, Retry), (400, Dead)])
def test_calls_that_run_at_once_are_judged_as_one_alone(status: int, kind: type[Outcome]) -> None:
    """A refused call in a group of tasks is not an error of the handler: a rate limit counts no attempt."""

    async def both(context: Context) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(context.complete({"messages": []}))
            group.create_task(asyncio.sleep(60))

    assert isinstance(bench(Reply(status, {}, b""), document=both).run(), kind)


def test_errors_that_come_together_are_judged_by_the_first() -> None:
    """The text and the rules are those of the error inside the group."""
    outcome = bench(
        types={"document": TypeConfig(give_up=("KeyError",))}, document=raising(ExceptionGroup("x", [KeyError("total"), ValueError()]))
    ).run()

    assert failure_of(outcome) == Failure("HANDLER_GAVE_UP", "KeyError: 'total'")


@pytest.mark.parametrize("outcome", [Released(), Retry(Failure("X", ""), Spent(), "soon", 1.0), Snooze(Failure("X", ""), Spent(), 1.0)])
def test_a_handler_does_not_choose_tiers(outcome: Outcome) -> None:
    """A success or a death may be returned; where and when a task comes back is the judge's to say."""

    async def decide(context: Context) -> Outcome:
        return outcome

    assert "raise TryAgainError" in failure_of(bench(document=decide).run()).text
