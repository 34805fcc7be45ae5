"""Real processes: what passes between an agent and a handler in a process."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from docllm.agent.handlers.handler_run import Inherited
from docllm.agent.handlers.processes.pool import HandlerProcesses
from docllm.agent.handlers.processes.process import ProcessHandler
from docllm.agent.handlers.processes.starting import ProcessStarter, check
from docllm.agent.ports.outcome import (
    Dead,
    Failure,
    HandlerState,
    Moved,
    Retry,
    Snooze,
    Succeeded,
)
from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.config import TypeConfig
from docllm.schemas.task.failures import ErrorClass
from tests.support.handlers import (
    FreeLocks,
    HandlersHarness,
    completion,
    failure_of,
    handlers_harness,
)

MODULE = """
import asyncio, logging, os, re, sys, threading
from datetime import datetime, timedelta, timezone

from docllm.agent.handlers import CallRefusedError, ComeBackError, DocumentError, GiveUpError
from docllm.agent.handlers import TryAgainError
from docllm.agent.ports.outcome import Dead, Failure, Released, Spent
from docllm.schemas.task.failures import ErrorClass


def extract(context):
    answer = context.complete({"model": context.model, "messages": []})
    context.follow({"id": "a/all", "prompt": "all"}, after="children", on_dead_child="die")
    context.follow({"id": "a/2", "prompt": "more"})
    context.log.warning("100 %% of %s", context.task.key)
    logging.getLogger("library").warning("from a library")
    facts = [context.name, context.prompt, context.schema, context.overdue, context.structured]
    facts += [context.task.tenant, context.attempt, context.losses]
    return {"text": answer.text, "document": context.document(), "facts": facts}


def texts(context):
    body = {"model": context.model, "messages": []}
    schema = {"type": "object"}
    return [context.complete(body).text, context.complete(body, schema=schema).text]


async def answer(context):
    return await context.complete({"model": context.model, "messages": []})


def give_up(context):
    raise GiveUpError("no invoice")


def again(context):
    raise TryAgainError("later", after_s=400)


def poll(context):
    number = context.state.get("number", 0)
    raise ComeBackError(after_s=5, state={"number": number + 1})


def poll_until(context):
    raise ComeBackError(at=datetime(2030, 1, 31, tzinfo=timezone(timedelta(hours=1))))


class BusyError(ConnectionError):
    pass


def rule(context):
    raise BusyError("busy")


def many(context):
    errors = []

    def call():
        try:
            context.complete({"model": "m", "messages": []})
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    raise BaseExceptionGroup("both", [ValueError("x"), *errors])


def caught(context):
    try:
        context.document()
    except DocumentError as error:
        return str(error)


def not_finite(context):
    return {"score": float("nan")}


def bad_number(context):
    context.follow({"id": "a/2", "prompt": "P", "params": {"top_p": float("nan")}})


def odd(context):
    return {1, 2}


def own_end(context):
    return Released()


def dead(context):
    context.complete({"model": context.model, "messages": []})
    return Dead(Failure(ErrorClass.NO_PROMPT, "no prompt"), Spent())


def bad_follow(context):
    context.follow({"id": "a/2", "prompt": "x", "typ": "y"})


def holds(context):
    with context.lock("account 7") as held, context.limit("crm", wait_s=2):
        held.check()
        return [held.fence, context.document()]


async def holds_async(context):
    async with context.lock("account 7") as held, context.limit("crm"):
        held.check()
        return [held.fence, await context.document()]


async def impatient(context):
    waiting = asyncio.ensure_future(context.document())
    await asyncio.sleep(0)
    waiting.cancel()
    return await context.document()


async def relocks(context):
    try:
        async with asyncio.timeout(0.2):
            async with context.lock("account 7"):
                pass
    except TimeoutError:
        pass
    async with context.lock("account 7") as held:
        return held.fence


async def hasty(context):
    try:
        async with asyncio.timeout(0):
            await context.complete({"model": "m", "messages": []})
    except TimeoutError:
        return "too late"


def backtracks(context):
    re.match(r"(a+)+$", "a" * 60 + "b")


def late(context):
    def call():
        release.wait()
        try:
            context.document()
        except Exception as error:
            told.append(type(error).__name__)
        done.set()

    if context.task.prompt == "second {document}":
        release.set()
        done.wait()
        return told
    threading.Thread(target=call).start()
    return "first"


release, done, told = threading.Event(), threading.Event(), []
"""
PATIENCE_S = 120.0
Scene = Callable[[HandlersHarness], Any]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a current folder with a module of handlers."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "invoices.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("import os\nos._exit(0)\n")
    return tmp_path


def played(
    function: str,
    scene: Scene,
    *replies: Any,
    types: Any = None,
    frozen_s: float | None = None,
) -> Any:
    """Return what a scene gives with documents that a function of the module handles."""

    async def play() -> Any:
        with ThreadPoolExecutor(1) as pool:
            loop = asyncio.get_running_loop()
            starter = ProcessStarter(
                thread=lambda call: loop.run_in_executor(pool, call), clock=SystemClock()
            )
            processes = HandlerProcesses(check=check, start=starter, max_processes=2)
            handler = ProcessHandler(function, "document", frozen_s=frozen_s)
            harness = handlers_harness(
                *replies, types=types, document=partial(processes.run, handler)
            )
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return harness, await scene(harness)
            finally:
                await starter.close()

    return asyncio.run(play())


async def once(harness: HandlersHarness) -> Any:
    attempt = harness.attempt(inherited=Inherited(tenant="acme"), losses=2)
    return await harness.handlers.run(attempt)


def test_a_handler_in_a_process_has_the_names_of_one_in_a_thread(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler's calls are the agent's, its log is the agent's, and so are its follow-ups."""
    caplog.set_level(logging.INFO)

    harness, outcome = played("invoices:extract", once, completion("Yes."))

    assert isinstance(outcome, Succeeded)
    assert orjson.loads(outcome.body) == {
        "text": "Yes.",
        "document": "Sales rose.",
        "facts": [
            "task 7 (b/a/1)",
            "Summarize: {document}",
            None,
            False,
            "json_schema",
            "acme",
            1,
            2,
        ],
    }
    assert (outcome.spent.tokens_in, outcome.spent.cost_micro) == (10, 12)
    assert [(made.key, made.join_role.name) for made in outcome.follow_ups] == [
        ("a/2", "NONE"),
        ("a/all", "DIE"),
    ]
    assert [call.request_id for call in harness.llm.calls] == ["b/a%2F1#1"]
    assert "task 7 (b/a/1): 100 % of a/1" in caplog.text
    assert "from a library" in caplog.text
    batches = {record.getMessage()[:4]: getattr(record, "batch", None) for record in caplog.records}
    assert (batches["task"], batches["from"]) == ("b", None)


def test_a_process_reads_an_answer_as_its_agent_does(folder: Path) -> None:
    """Thoughts are no part of the text, and JSON has no fence."""
    replies = completion("<think>Well.</think>Yes."), completion("```json\n{}\n```")

    _, outcome = played("invoices:texts", once, *replies)

    assert isinstance(outcome, Succeeded)
    assert orjson.loads(outcome.body) == ["Yes.", "{}"]


def test_an_answer_is_stored_as_the_provider_sent_it(folder: Path) -> None:
    """The process cannot change it: the agent keeps it."""
    _, outcome = played("invoices:answer", once, completion("Yes."))

    assert isinstance(outcome, Succeeded)
    assert b"choices" in outcome.body


@pytest.mark.parametrize(
    ("function", "error_class", "text"),
    [
        ("give_up", ErrorClass.HANDLER_GAVE_UP, "no invoice"),
        ("again", ErrorClass.HANDLER, "later"),
        ("rule", ErrorClass.HANDLER_GAVE_UP, "BusyError: busy"),
        ("own_end", ErrorClass.HANDLER, "TypeError: a handler does not return Released"),
        (
            "odd",
            ErrorClass.HANDLER,
            "TypeError: the handler returned what JSON cannot hold (Type is not JSON",
        ),
        ("not_finite", ErrorClass.HANDLER, "ValueError: result['score'] is nan, which JSON"),
        ("bad_number", ErrorClass.HANDLER, "ValueError: line['params']['top_p'] is nan, which"),
        ("bad_follow", ErrorClass.HANDLER, "FollowUpError: the follow-up 'a/2' is no task: its"),
    ],
)
def test_what_a_handler_raises_is_judged_as_elsewhere(
    folder: Path, function: str, error_class: ErrorClass, text: str
) -> None:
    """The handler's decisions, and its type's rules by the names of errors, hold."""
    rules = {"document": TypeConfig(give_up=("ConnectionError",))}

    _, outcome = played(f"invoices:{function}", once, types=rules)

    assert failure_of(outcome).error_class is error_class
    assert failure_of(outcome).text.startswith(text)
    assert (
        function in {"odd", "own_end", "not_finite"}
        or f"in {function}" in failure_of(outcome).traceback
    )
    if function == "again":
        assert isinstance(outcome, Retry)
        assert outcome.delay_s >= 400


@pytest.mark.parametrize(
    ("function", "kept"), [("poll", b'{"number":4}'), ("poll_until", b'{"number":3}')]
)
def test_a_handler_in_a_process_comes_back_with_its_state(
    folder: Path, function: str, kept: bytes
) -> None:
    """The state goes there and back again, and so does the time."""

    async def scene(harness: HandlersHarness) -> Any:
        state = HandlerState(b'{"number":3}', 7)
        return await harness.handlers.run(harness.attempt(state=state))

    _, outcome = played(f"invoices:{function}", scene)

    assert isinstance(outcome, Moved)
    assert outcome.state == HandlerState(kept, 8)
    at = datetime(2030, 1, 30, 23, tzinfo=UTC) if function == "poll_until" else None
    assert (outcome.at, outcome.delay_s) == (at, 5.0 if at is None else 1.0)


def test_a_refused_call_ends_the_handler_with_the_judges_outcome(folder: Path) -> None:
    """The refused call decides even in a group of errors, whose calls were made at once."""
    harness, outcome = played("invoices:many", once, completion(reason="length"))

    assert isinstance(outcome, Retry | Dead)
    assert outcome.failure.error_class not in {ErrorClass.HANDLER, ErrorClass.HANDLER_GAVE_UP}
    assert outcome.spent.tokens_in == 20
    assert len(harness.llm.calls) == 2


def test_a_suspect_that_lets_no_python_code_run_is_ended(folder: Path) -> None:
    """Its process would otherwise compute for years."""
    _, outcome = played("invoices:backtracks", once, frozen_s=0.3)

    assert isinstance(outcome, Retry)
    assert "no Python code ran in it for 0.3 s of processor time" in outcome.failure.text


def test_the_built_in_handler_runs_in_a_process(folder: Path) -> None:
    """The handler's answer is the result."""
    _, outcome = played("docllm.agent.handlers.builtin.chat:chat", once, completion("Yes."))

    assert isinstance(outcome, Succeeded)
    assert b"choices" in outcome.body


def test_a_death_that_a_handler_returns_is_its_outcome(folder: Path) -> None:
    """What it has paid is in it."""
    _, outcome = played("invoices:dead", once)

    assert outcome == Dead(Failure(ErrorClass.NO_PROMPT, "no prompt"), outcome.spent)
    assert outcome.spent.tokens_in == 10


def test_an_error_of_the_agent_may_be_caught_by_its_class(folder: Path) -> None:
    """A document that cannot be read is one."""

    async def scene(harness: HandlersHarness) -> Any:
        task = {"id": "a", "prompt": "{document}", "input": {"uri": "file:///etc/passwd"}}
        return await harness.handlers.run(harness.attempt(value=orjson.dumps(task)))

    _, outcome = played("invoices:caught", scene)

    assert isinstance(outcome, Succeeded)
    assert b"is not below an allowed root" in outcome.body


@pytest.mark.parametrize("function", ["holds", "holds_async"])
def test_a_handler_in_a_process_holds_locks_and_uses_what_is_limited(
    folder: Path, function: str
) -> None:
    """The agent holds both for its attempt."""
    harness, outcome = played(f"invoices:{function}", once)

    assert isinstance(outcome, Succeeded)
    assert orjson.loads(outcome.body) == [1, "Sales rose."]
    assert (len(harness.uses.waits_s), harness.uses.seats) == (1, 1)


@pytest.mark.parametrize(
    ("function", "result"), [("impatient", b'"Sales rose."'), ("hasty", b'"too late"')]
)
def test_a_coroutine_may_give_up_a_call_before_its_answer(
    folder: Path, function: str, result: bytes
) -> None:
    """The answer that comes nevertheless harms neither later calls nor the end of the run."""
    _, outcome = played(f"invoices:{function}", once)

    assert isinstance(outcome, Succeeded)
    assert outcome.body == result


class TakenOnce(FreeLocks):
    """A lock that another attempt holds until nobody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def ask(self, name: str) -> None:
        self.asked.append(name)

    async def wait(self, name: str, wait_s: float, *, once: bool = False) -> int | None:
        del once
        if self.asked == [name]:
            await asyncio.get_running_loop().create_future()
        return await super().wait(name, wait_s)

    def give_back(self, name: str) -> None:
        self.asked.append(f"not {name}")


def test_a_coroutine_that_waits_no_longer_for_a_lock_does_not_get_it(folder: Path) -> None:
    """The agent gives the call up, too, so the handler can ask for the lock again."""
    locks = TakenOnce()

    async def scene(harness: HandlersHarness) -> Any:
        return await harness.handlers.run(harness.attempt(locks=locks))

    _, outcome = played("invoices:relocks", scene)

    assert isinstance(outcome, Succeeded)
    assert locks.asked == ["account 7", "not account 7"] * 2


def test_a_thread_of_an_earlier_attempt_cannot_call_through_the_next_one(folder: Path) -> None:
    """The thread's attempt has ended, whatever runs in its process now."""

    async def scene(harness: HandlersHarness) -> Any:
        await once(harness)
        task = {"id": "b", "prompt": "second {document}", "input": {"text": "x"}}
        return await harness.handlers.run(harness.attempt(value=orjson.dumps(task)))

    _, outcome = played("invoices:late", scene)

    assert isinstance(outcome, Succeeded)
    assert orjson.loads(outcome.body) == ["AttemptEndedError"]


def test_a_handler_is_checked_in_a_process(folder: Path) -> None:
    """What its import does there harms nobody here."""
    check("invoices:extract")
    with pytest.raises(ConfigError, match="module invoices has no function extrat"):
        check("invoices:extrat")
    with pytest.raises(ConfigError, match="broken:run ends its process while it is imported"):
        check("broken:run")


def test_a_process_that_cannot_import_its_handler_is_no_fault_of_the_task(folder: Path) -> None:
    """The task comes back uncounted, with the reason."""
    _, outcome = played("invoices:gone", once)

    assert isinstance(outcome, Snooze)
    assert outcome.failure.text.startswith("module invoices has no function gone")
