"""In which process a reply is judged, and the outcome if that takes too long."""

import asyncio
import os
import threading
import time
from dataclasses import replace
from functools import partial
from typing import Any, Self

import orjson
import pytest

from docllm.agent.handlers import ChildExecutor
from docllm.agent.handlers.calls import judging
from docllm.agent.handlers.calls.judging import judged
from docllm.agent.judge import judge
from docllm.agent.ports import Reply
from docllm.agent.ports.outcome import Outcome, Retry, Succeeded
from docllm.schemas.text.untrusted import ContainedError, sealed
from tests.support.handlers import (
    CountingExecutor,
    completion,
    failure_of,
    handlers_harness,
    succeeded,
)
from tests.support.hostile import FAILURES, PanicError, failing, names
from tests.support.replies import FACTS
from tests.unit.schemas.task.line.test_schema_cost import ANSWER, BOMBS, INVOICE

FAST = {
    name: bomb
    for name, bomb in BOMBS.items()
    if name in {"a slow pattern", "a pattern of many letters"}
}


def answered(answer: Any) -> Reply:
    return completion(orjson.dumps(answer).decode())


class Broken(CountingExecutor):
    """A child that treats each call with a schema as the test says."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def __call__(self, call: Any) -> Any:
        self.calls += 1
        if call.args[0].args[1].schema is not None:
            raise self.error
        return call()


@pytest.mark.parametrize("name", FAST)
def test_an_answer_that_takes_long_to_judge_is_judged_apart(name: str) -> None:
    """An expensive answer is judged in the child, so that the heartbeat is not delayed.

    Otherwise all tasks of the agent would lose their lease.
    """
    schema, answer = FAST[name]
    it = handlers_harness(answered(answer))

    it.run({"id": "a", "prompt": "p", "schema": schema})

    assert it.apart.calls == len(it.llm.calls)  # two if the answer was sent back


def test_ordinary_replies_are_judged_in_place() -> None:
    """Ordinary schemas are judged in this process."""
    it = handlers_harness(answered(ANSWER))

    succeeded(it.run({"id": "a", "prompt": "p", "schema": INVOICE}))

    assert it.apart.calls == 0


def test_a_schema_that_takes_long_to_compile_is_never_compiled_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An expensive schema is never compiled in this process.

    That holds when a task is read at its attempt and when its answer is judged.
    """
    monkeypatch.setattr(
        "docllm.schemas.task.answer_schema.validator.jsonschema_rs.validator_for",
        failing(AssertionError("compiled here")),
    )
    executor = Broken(TimeoutError())

    outcome = asyncio.run(
        judged(answered("a"), replace(FACTS, schema=BOMBS["a slow pattern"][0]), executor)
    )

    assert failure_of(outcome).error_class == "BAD_OUTPUT"
    assert isinstance(
        handlers_harness(completion("cut", "length")).run(
            {"id": "a", "prompt": "p", "schema": {"pattern": r"\pL{299}"}}
        ),
        Outcome,
    )


def test_an_answer_that_takes_too_long_to_judge_is_bad_output_and_is_paid() -> None:
    """An answer that takes too long to judge is bad output, with advice, and its call is paid."""
    outcome = asyncio.run(
        judged(
            answered("a"), replace(FACTS, schema=BOMBS["a slow pattern"][0]), Broken(TimeoutError())
        )
    )

    assert isinstance(outcome, Retry)
    assert outcome.failure.error_class == "BAD_OUTPUT"
    assert "takes too long to check against the schema; simplify the schema" in outcome.failure.text
    assert (outcome.spent.tokens_in, outcome.spent.tokens_out) == (10, 2)


@pytest.mark.timeout(300)
def test_the_two_bombs_are_ended_in_the_child() -> None:
    """Two pathological answers are ended in the child, and the executor goes on behind them.

    They used to block every thread of the agent for 13 and 22 seconds.
    """
    lists = {"items": {"enum": [[1] * 50 + [number] for number in range(900)]}}
    bombs: list[tuple[dict[str, Any], Any]] = [
        (lists, [[1] * 50 + [899]] * 20_000),
        ({"items": {"allOf": [{"minimum": -n} for n in range(50_000)]}}, [0] * 400_000),
    ]

    async def run() -> list[Outcome]:
        executor = ChildExecutor(limit_s=3)
        outcomes: list[Outcome] = [
            await judged(answered(answer), replace(FACTS, schema=schema), executor)
            for schema, answer in bombs
        ]
        outcomes.append(
            await judged(
                Reply(200, {}, b" " * judging.PARSE_APART_BYTES + answered("fine").body),
                FACTS,
                executor,
            )
        )
        executor.close()
        return outcomes

    *bad, good = asyncio.run(run())

    assert ["too long" in failure_of(outcome).text for outcome in bad] == [True, True]
    assert isinstance(good, Succeeded)


class Ticker(threading.Thread):
    """Beats like an agent's heartbeat; `gap_s` is the longest time for which it stood still."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.gap_s = 0.0

    def run(self) -> None:
        beat_s = time.monotonic()
        while not self.ended.wait(0.005):
            now_s = time.monotonic()
            self.gap_s, beat_s = max(self.gap_s, now_s - beat_s), now_s

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.join()


@pytest.mark.timeout(120)
def test_a_bomb_stops_no_heartbeat() -> None:
    """In this process, judging stops every thread until it ends; in the child, for a fraction."""
    schema = {"items": {"enum": [[1] * 50 + [number] for number in range(900)]}}
    reply, facts = answered([[1] * 50 + [899]] * 80), replace(FACTS, schema=schema)

    async def apart() -> Outcome:
        executor = ChildExecutor(limit_s=60.0)
        await executor(os.getpid)
        outcome = await judged(reply, facts, executor)
        executor.close()
        return outcome

    with Ticker() as here:
        judge(reply, facts)
    with Ticker() as child_ticker:
        outcome = asyncio.run(apart())

    assert isinstance(outcome, Succeeded)
    assert child_ticker.gap_s < here.gap_s / 2


def test_a_reply_that_ends_its_child_twice_is_bad_output() -> None:
    """A reply that exhausts a child's memory twice is bad output, not the provider's failure."""
    outcome = asyncio.run(
        judged(
            answered("a"),
            replace(FACTS, schema=BOMBS["a slow pattern"][0]),
            Broken(OSError("no child")),
        )
    )

    assert failure_of(outcome).error_class == "BAD_OUTPUT"
    assert "ended the process that judged it" in failure_of(outcome).text


def test_a_cancellation_passes() -> None:
    """A cancellation passes: an agent that leaves waits for no child."""

    class Waits(CountingExecutor):
        async def __call__(self, call: Any) -> Any:
            await asyncio.get_running_loop().create_future()

    async def run() -> None:
        judging_it = asyncio.ensure_future(
            judged(answered("a"), replace(FACTS, schema=BOMBS["a slow pattern"][0]), Waits())
        )
        await asyncio.sleep(0)
        judging_it.cancel()
        with pytest.raises(asyncio.CancelledError):
            await judging_it

    asyncio.run(run())


@pytest.mark.parametrize("error", FAILURES, ids=names)
def test_a_schema_that_cannot_be_weighed_is_judged_apart(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """A schema whose cost cannot be estimated is judged in the child."""
    monkeypatch.setattr("signal.getsignal", lambda _number: None)
    monkeypatch.setattr(judging, "is_heavy_for", failing(error))
    it = handlers_harness(answered([]))

    assert isinstance(it.run({"id": "a", "prompt": "p", "schema": {"type": "array"}}), Succeeded)
    assert it.apart.calls == 1


@pytest.mark.parametrize(
    "error", [PanicError("lost"), SystemExit(3), KeyboardInterrupt()], ids=names
)
def test_an_error_in_the_child_process_becomes_an_exception(error: BaseException) -> None:
    """Errors of a call in a child come back as plain exceptions.

    A panic that came back as it is would end the agent, and an error that cannot be unpickled would
    end the pool.
    """

    async def run() -> int:
        executor = ChildExecutor()
        with pytest.raises(ContainedError, match=names(error)):
            await executor(partial(sealed, partial(_fail, error)))
        alive: int = await executor(partial(sealed, os.getpid))
        executor.close()
        return alive

    assert asyncio.run(run()) > 0


def _fail(error: BaseException) -> None:
    raise error
