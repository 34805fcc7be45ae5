"""The accounts of routes, and the cheap prompt that tells a provider's fault from a task's."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import orjson
import pytest

from agent.judge import Effect
from agent.ports import LLM, Call, CallFailed, Reply
from agent.routes import RouteNames, Router
from agent.routes.accounts import Accounts, keys_in_clear
from agent.routes.probe_sender import ProbeSender
from schemas.errors import ConfigError
from schemas.settings.config import Config, LLMConfig, RouteConfig, Secret
from tests.support.routes import ROUTE, call, failed, stopped

CONFIG = Config(
    llm=LLMConfig(base_url="http://main", api_key=Secret("main key"), model="mini", timeout_s=60.0),
    routes={
        "same": RouteConfig(model="large", timeout_s=5.0),
        "keyed": RouteConfig(api_key=Secret("other key")),
        "local": RouteConfig(base_url="http://local"),
    },
)
OK = Reply(200, {}, b'{"choices": [{"message": {"content": "OK"}, "finish_reason": "stop"}]}')


@dataclass
class FakeLLM:
    address: str = ""
    key: str | None = None
    answer: Reply | CallFailed | Exception = OK
    calls: list[Call] = field(default_factory=list)
    closed: int = 0
    broken: bool = False

    async def complete(self, call: Call) -> Reply | CallFailed:
        self.calls.append(call)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        self.closed += 1
        if self.broken:
            raise RuntimeError("broken")


def connected(made: list[FakeLLM]) -> Callable[[str, Secret | None], LLM]:
    """Return a `connect` function that records the clients it makes."""

    def connect(base_url: str, api_key: Secret | None) -> LLM:
        made.append(FakeLLM(base_url, api_key.reveal() if api_key else None))
        return made[-1]

    return connect


def test_a_route_has_the_account_that_it_names() -> None:
    """A route's address, key, model and limit are its own, or else those of `[llm]`.

    A model that nobody configured uses that account too.
    """
    accounts = Accounts(config=CONFIG, naming=RouteNames(CONFIG), connect=connected([]))
    found = {name: accounts(name) for name in (ROUTE, "same", "keyed", "local", "other/model")}
    clients = {name: one.llm for name, one in found.items()}

    assert [(one.model, one.timeout_s) for one in found.values()] == [
        ("mini", 60.0), ("large", 5.0), ("keyed", 60.0), ("local", 60.0), ("other/model", 60.0),
    ]  # fmt: skip
    assert clients[ROUTE] is clients["same"] is clients["other/model"]
    assert [(one.address, one.key) for one in clients.values() if isinstance(one, FakeLLM)][
        2:4
    ] == [
        ("http://main", "other key"),
        ("http://local", None),
    ]


def test_a_key_is_sent_to_no_other_address() -> None:
    """A route with its own address and no key gets no key: `[llm]`'s key is not for that server."""
    made: list[FakeLLM] = []
    Accounts(config=CONFIG, naming=RouteNames(CONFIG), connect=connected(made))

    assert {one.address: one.key for one in made if one.key != "other key"} == {
        "http://main": "main key",
        "http://local": None,
    }


def test_each_client_is_closed_once() -> None:
    """Each client is closed once, though routes may share one."""
    made: list[FakeLLM] = []
    accounts = Accounts(config=CONFIG, naming=RouteNames(CONFIG), connect=connected(made))
    asyncio.run(accounts.close())

    assert [one.closed for one in made] == [1, 1, 1]


def test_a_client_that_cannot_be_closed_leaves_no_other_open() -> None:
    """One that is left open may abort the interpreter's end, and the exit code with it."""
    made: list[FakeLLM] = []
    accounts = Accounts(config=CONFIG, naming=RouteNames(CONFIG), connect=connected(made))
    made[0].broken = True

    with pytest.raises(RuntimeError, match="broken"):
        asyncio.run(accounts.close())

    assert [one.closed for one in made] == [1, 1, 1]


def test_each_address_that_a_key_goes_to_in_clear_is_told_once() -> None:
    """Two keys of one address are one warning; an address without a key, or on this machine, is none."""
    keyed = RouteConfig(base_url="http://near:8000/v1", api_key=Secret("k"))
    routes = {
        "near": keyed,
        "here": RouteConfig(base_url="http://localhost/v1", api_key=Secret("k")),
    }
    config = Config(llm=CONFIG.llm, routes={**CONFIG.routes, **routes})

    told = [warning.split(" unencrypted")[0] for warning in keys_in_clear(config, {})]

    assert told == ["the API key is sent to main", "the API key is sent to near"]


def test_a_bad_account_names_its_route() -> None:
    """A bad account is reported with its route when the agent starts, not at the first task."""

    def refuse(base_url: str, _api_key: Secret | None) -> LLM:
        if base_url == "http://local":
            raise ConfigError("this is no address; write another one")
        return FakeLLM()

    with pytest.raises(ConfigError, match="route local: this is no address; write another one"):
        Accounts(config=CONFIG, naming=RouteNames(CONFIG), connect=refuse)


# ---- the prompt


class StepClock:
    """A clock that ends the duty at its first wait."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s

    def now_s(self) -> float:
        return self.at_s

    def utc_s(self) -> float:
        raise AssertionError("no date is asked for")

    async def sleep(self, _delay_s: float) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        raise asyncio.CancelledError


def due() -> Router:
    """Return routes whose default one is due for the prompt at 109 s."""
    table = stopped()
    for now_s in (102.0, 105.0):
        call(table, failed(), now_s, task_id=7)
    table.room(ROUTE, 109.0, 0, 64)
    return table


def prober(table: Router, llm: FakeLLM, at_s: float = 109.0) -> ProbeSender:
    config = Config(llm=LLMConfig(base_url="http://main", model="mini"))
    accounts = Accounts(config=config, naming=table.naming, connect=lambda _url, _key: llm)
    return ProbeSender(routes=table, accounts=accounts, clock=StepClock(at_s))


def ran(one: ProbeSender) -> None:
    """Let the duty look once."""
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(one.run())


def test_the_prompt_is_sent_when_it_is_due() -> None:
    """The prompt has a few tokens and a telling id; its answer opens the route."""
    table, llm = due(), FakeLLM()
    ran(prober(table, llm))

    (sent,) = llm.calls
    body = orjson.loads(sent.body)
    assert (sent.request_id, sent.timeout_s, body["max_tokens"]) == (
        "docllm-probe/default#1",
        60.0,
        16,
    )
    assert body["messages"] == [{"role": "user", "content": "Reply with OK."}]
    assert not table.closed(ROUTE, 109.0)


def test_nothing_is_sent_before() -> None:
    """No prompt is sent on routes that are well, nor while tasks serve as probes."""
    llm = FakeLLM()
    ran(prober(stopped(), llm))

    assert llm.calls == []


def test_a_prompt_that_hangs_makes_no_room_for_tasks() -> None:
    """A prompt that hangs after a resume makes room for one task, and not for a second.

    A second task would be given back at once.
    """
    table = due()
    assert table.prompts(109.0)
    table.resume(ROUTE, 110.0)

    assert table.room(ROUTE, 110.0, 0, 64) == 1
    assert table.admit(ROUTE, 1, 110.0) is not None
    assert table.room(ROUTE, 110.0, 1, 64) == 0


@pytest.mark.parametrize("answer", [CallFailed("NETWORK", "refused"), Reply(503, {}, b"")])
def test_a_prompt_that_fails_leaves_the_route_stopped(answer: Reply | CallFailed) -> None:
    """A failed prompt leaves the route stopped, and a task has the next turn."""
    table = due()
    ran(prober(table, FakeLLM(answer=answer)))

    assert table.closed(ROUTE, 109.0)
    assert table.room(ROUTE, 114.0, 0, 64) == 1


def test_a_bug_in_the_prompt_ends_no_agent(caplog: pytest.LogCaptureFixture) -> None:
    """A bug in the prompt is logged and says nothing about the route."""
    table = due()
    ran(prober(table, FakeLLM(answer=RuntimeError("oops"))))

    assert table.closed(ROUTE, 109.0)
    assert [record.levelno for record in caplog.records][-1] == logging.ERROR


def test_others_may_ask_too() -> None:
    """Others may send the prompt, with the route's own model and limit.

    Route names are encoded in the id.
    """
    llm = FakeLLM()
    one = prober(stopped(), llm)

    assert asyncio.run(one.ask("other/model", 7.0)).effect is Effect.UP
    assert (llm.calls[0].request_id, llm.calls[0].timeout_s) == (
        "docllm-probe/other%2Fmodel#1",
        7.0,
    )
    assert orjson.loads(llm.calls[0].body)["model"] == "other/model"
