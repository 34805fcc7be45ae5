"""Hooks are found by the settings, run with the outcome, and fail alone."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from docllm.agent.handlers import Context, HandlerRun
from docllm.agent.handlers.functions import HandlerFunctions
from docllm.agent.hooks.functions import HookOutcome, Hooks, load_hooks
from docllm.agent.ledger.hook_runs import HookReturn
from docllm.agent.ports import Reply
from docllm.agent.process.containment import new_event_loop
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.config import TypeConfig
from docllm.schemas.task.hooks import HookEvent
from tests.support.handlers import TASK, FreeLocks, handlers_harness

KIND = ("document", HookEvent.SUCCESS)
OUTCOME = HookOutcome(
    event=HookEvent.SUCCESS,
    status="succeeded",
    result="Fine.",
    error_class="",
    error="",
    disposition="",
    attempts=1,
)
MODULE = """
import asyncio

async def stubborn(context, outcome):
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        await asyncio.get_running_loop().create_future()

async def good(context, outcome):
    return outcome.result

def plain(context, outcome):
    context.complete({"messages": []})

def narrow(context):
    return None

def dripping(context, outcome):
    yield outcome.result

async def flowing(context, outcome):
    yield outcome.result

class Dripping:
    def __call__(self, context, outcome):
        yield outcome.result

dripping_object = Dripping()
value = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of a person, in the current folder."""
    (tmp_path / "hooks_of_a_person.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "hooks_of_a_person"
    sys.modules.pop("hooks_of_a_person", None)


def load(**types: TypeConfig) -> Any:
    functions = HandlerFunctions(most_left=1, failed=lambda _reason: None, clean_up_s=0.0)
    return load_hooks(types, runner=functions.runner)


def run(hook: Any, *replies: Reply, value: bytes = orjson.dumps(TASK), **more: Any) -> HookReturn:
    given: dict[str, Any] = {
        "task_id": 7,
        "batch": "b",
        "value": value,
        "counted_before": 0,
        "max_attempts": 5,
        "snoozes": 0,
        "left_s": 30.0,
        "route": "default",
        "limit_s": None,
        "refused_alone": False,
        "may_call": lambda: True,
        "locks": FreeLocks(),
    }
    tools = handlers_harness(*replies).tools
    hooks = Hooks(tools=tools, by_kind={KIND: hook})
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(hooks.run(KIND, HandlerRun(**given | more), OUTCOME))


def test_each_event_has_the_function_that_the_settings_name(module: str) -> None:
    """A type without hooks has none."""
    loaded = load(
        invoice=TypeConfig(on_success=f"{module}:good", on_dead=f"{module}:plain"),
        letter=TypeConfig(),
    )

    assert set(loaded) == {("invoice", HookEvent.SUCCESS), ("invoice", HookEvent.DEAD)}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("absent", "has no function absent; define it there as: def absent(context, outcome)"),
        ("value", "has no function value"),
        ("narrow", "must take the context and the outcome"),
        ("dripping", "hooks_of_a_person:dripping is a generator, so its body would never run"),
        ("flowing", "use no `yield` in it, and define it as: def flowing(context, outcome)"),
        ("dripping_object", "is a generator"),
    ],
)
def test_a_hook_that_cannot_be_used_is_refused(module: str, name: str, text: str) -> None:
    """The error names the setting and the fix."""
    with pytest.raises(ConfigError, match=r"types\.invoice\.on_retry: ") as refusal:
        load(invoice=TypeConfig(on_retry=f"{module}:{name}"))

    assert text in str(refusal.value)


def test_a_plain_function_runs_in_a_thread(module: str) -> None:
    """The function's calls block it alone, and are paid for by the task."""
    loaded = load(document=TypeConfig(on_success=f"{module}:plain"))

    returned = run(loaded[KIND])

    assert (returned.failure, returned.spent.tokens_in) == ("", 10)


def test_a_hook_that_ignores_its_cancellation_fails(module: str) -> None:
    """No other hook waits until it returns."""
    loaded = load(invoice=TypeConfig(on_success=f"{module}:stubborn"))

    returned = run(loaded["invoice", HookEvent.SUCCESS], left_s=0.01)

    assert returned.failure == "it did not end in time"


def test_a_refused_call_is_the_reason_of_a_failure() -> None:
    """A person reads what the provider said."""

    async def hook(context: Context, _outcome: HookOutcome) -> None:
        await context.complete({"model": "m", "messages": []})

    returned = run(hook, Reply(400, {}, b'{"error": {"message": "no such field"}}'))

    assert returned.failure.startswith("its call failed: ")
    assert "no such field" in returned.failure


def test_a_hook_orders_no_follow_ups() -> None:
    """Nothing would make them: the task has been settled."""

    async def hook(context: Context, _outcome: HookOutcome) -> None:
        await context.follow({"id": "next", "prompt": "Go on"})

    assert "a hook cannot order follow-ups" in run(hook).failure


def test_an_unreadable_line_is_the_hooks_failure() -> None:
    """Other hooks go on."""

    async def hook(_context: Context, _outcome: HookOutcome) -> None:
        raise AssertionError("it has no task")

    assert run(hook, value=b"{").failure.startswith("the record is not a task line: ")
