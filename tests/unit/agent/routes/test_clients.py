"""The clients of routes, and where their keys are sent."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from docllm.agent.ports import LLM, Call, CallFailed, Reply
from docllm.agent.routes import RouteNames
from docllm.agent.routes.clients import Connect, RouteClients, keys_in_clear
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.config import Config, LLMConfig, RouteConfig, Secret, Structured
from tests.support.routes import ROUTE

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
    headers: dict[str, str] = field(default_factory=dict)
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


def connected(made: list[FakeLLM]) -> Connect:
    """Return a `connect` function that records the clients it makes."""

    def connect(base_url: str, api_key: Secret | None, headers: Mapping[str, Secret]) -> LLM:
        shown = {name: value.reveal() for name, value in headers.items()}
        made.append(FakeLLM(base_url, api_key.reveal() if api_key else None, shown))
        return made[-1]

    return connect


def test_a_route_has_the_account_that_it_names() -> None:
    """A route's address, key, model and limit are its own, or else those of `[llm]`.

    A model that nobody configured uses that account too.
    """
    route_clients = RouteClients(config=CONFIG, naming=RouteNames(CONFIG), connect=connected([]))
    by_route = {
        name: route_clients(name) for name in (ROUTE, "same", "keyed", "local", "other/model")
    }
    clients = {name: client.llm for name, client in by_route.items()}

    assert [(client.model, client.timeout_s) for client in by_route.values()] == [
        ("mini", 60.0), ("large", 5.0), ("keyed", 60.0), ("local", 60.0), ("other/model", 60.0),
    ]  # fmt: skip
    assert clients[ROUTE] is clients["same"] is clients["other/model"]
    assert [
        (client.address, client.key) for client in clients.values() if isinstance(client, FakeLLM)
    ][2:4] == [
        ("http://main", "other key"),
        ("http://local", None),
    ]


def test_an_account_knows_what_its_model_takes() -> None:
    """As it is set, or else as it is known; of another model nothing follows."""
    routes = {"set": RouteConfig(context_tokens=9000), "gpt-4o": RouteConfig()}
    config = Config(llm=LLMConfig(base_url="http://a", context_tokens=5000), routes=routes)
    route_clients = RouteClients(config=config, naming=RouteNames(config), connect=connected([]))

    assert {
        name: route_clients(name).context_tokens for name in (ROUTE, "set", "gpt-4o", "o1", "mine")
    } == {ROUTE: 5000, "set": 9000, "gpt-4o": 128_000, "o1": 200_000, "mine": None}


def test_a_key_is_sent_to_no_other_address() -> None:
    """A route with its own address and no key gets no key: `[llm]`'s key is not for that server."""
    made: list[FakeLLM] = []
    RouteClients(config=CONFIG, naming=RouteNames(CONFIG), connect=connected(made))

    assert {client.address: client.key for client in made if client.key != "other key"} == {
        "http://main": "main key",
        "http://local": None,
    }


def test_a_client_is_shared_by_routes_with_equal_address_key_and_headers() -> None:
    """One route's headers must not go out with the calls of another."""
    own = {"OpenAI-Organization": Secret("org-1")}
    routes = {
        "a": RouteConfig(headers=own),
        "b": RouteConfig(headers=dict(own)),
        "c": RouteConfig(headers={"OpenAI-Organization": Secret("org-2")}),
        "d": RouteConfig(headers={}),
    }
    config = Config(llm=replace(CONFIG.llm, headers={"X-Title": Secret("all")}), routes=routes)
    made: list[FakeLLM] = []
    route_clients = RouteClients(config=config, naming=RouteNames(config), connect=connected(made))

    clients = {name: route_clients(name).llm for name in (ROUTE, *routes, "other/model")}

    assert clients["a"] is clients["b"]
    assert clients[ROUTE] is clients["other/model"]
    assert sorted(str(client.headers) for client in made) == [
        "{'OpenAI-Organization': 'org-1'}",
        "{'OpenAI-Organization': 'org-2'}",
        "{'X-Title': 'all'}",
        "{}",
    ]


def test_a_route_has_the_form_of_structured_output_of_its_server() -> None:
    """A model that nobody configured is asked as the default route is."""
    routes = {"r": RouteConfig(structured=Structured.NONE)}
    config = Config(llm=replace(CONFIG.llm, structured=Structured.JSON_OBJECT), routes=routes)
    route_clients = RouteClients(config=config, naming=RouteNames(config), connect=connected([]))

    assert [route_clients(name).structured for name in (ROUTE, "r", "other/model")] == [
        "json_object",
        "none",
        "json_object",
    ]


def test_each_client_is_closed_once() -> None:
    """Each client is closed once, though routes may share one."""
    made: list[FakeLLM] = []
    route_clients = RouteClients(config=CONFIG, naming=RouteNames(CONFIG), connect=connected(made))
    asyncio.run(route_clients.close())

    assert [client.closed for client in made] == [1, 1, 1]


def test_a_client_that_cannot_be_closed_leaves_no_other_open() -> None:
    """One that is left open may abort the interpreter's end, and the exit code with it."""
    made: list[FakeLLM] = []
    route_clients = RouteClients(config=CONFIG, naming=RouteNames(CONFIG), connect=connected(made))
    made[0].broken = True

    with pytest.raises(RuntimeError, match="broken"):
        asyncio.run(route_clients.close())

    assert [client.closed for client in made] == [1, 1, 1]


def test_each_address_that_gets_a_key_in_clear_text_is_reported_once() -> None:
    """Two keys of one address give one warning; no key, or a local address, gives none."""
    keyed = RouteConfig(base_url="http://near:8000/v1", api_key=Secret("k"))
    routes = {
        "near": keyed,
        "here": RouteConfig(base_url="http://localhost/v1", api_key=Secret("k")),
    }
    config = Config(llm=CONFIG.llm, routes={**CONFIG.routes, **routes})

    addresses = [warning.split(" unencrypted")[0] for warning in keys_in_clear(config, {})]

    assert addresses == ["the API key is sent to main", "the API key is sent to near"]


def test_headers_in_clear_text_are_reported() -> None:
    """The headers may be the key of the account."""
    headers = {"api-key": Secret("k")}
    config = Config(llm=LLMConfig(base_url="http://main", headers=headers))

    (warning,) = keys_in_clear(config, {})

    assert warning.startswith("the headers of the account are sent to main unencrypted")


def test_a_bad_account_names_its_route() -> None:
    """A bad account is reported with its route when the agent starts, not at the first task."""

    def refuse(base_url: str, _api_key: Secret | None, _headers: Mapping[str, Secret]) -> LLM:
        if base_url == "http://local":
            raise ConfigError("this is no address; write another one")
        return FakeLLM()

    with pytest.raises(ConfigError, match="route local: this is no address; write another one"):
        RouteClients(config=CONFIG, naming=RouteNames(CONFIG), connect=refuse)


# ---- the prompt


# ---- settings that are read again


def test_changed_settings_keep_the_clients_of_unchanged_accounts() -> None:
    """Only the account with another key gets a new client; the old one ends after its calls."""
    made: list[FakeLLM] = []
    route_clients = RouteClients(config=CONFIG, naming=RouteNames(CONFIG), connect=connected(made))
    before = {name: route_clients(name).llm for name in (ROUTE, "keyed", "local")}
    config = replace(CONFIG, routes=CONFIG.routes | {"keyed": RouteConfig(api_key=Secret("new"))})

    made[0].broken = True  # which harms nobody else
    route_clients.prepare(config)(50.0)
    asyncio.run(route_clients.close_retired(49.0))
    assert [llm.closed for llm in made] == [0, 0, 0, 0]
    asyncio.run(route_clients.close_retired(50.0))

    assert route_clients(ROUTE).llm is before[ROUTE]
    assert route_clients("local").llm is before["local"]
    assert route_clients("keyed").llm is made[3]
    assert made[3].key == "new"
    assert [llm.closed for llm in made] == [1, 0, 0, 0]
    asyncio.run(route_clients.close())
    assert [llm.closed for llm in made] == [1, 1, 1, 1]


def test_settings_that_cannot_be_used_change_no_account() -> None:
    """The clients that were made in vain are closed with the others."""
    made: list[FakeLLM] = []
    connect = connected(made)

    def picky(base_url: str, api_key: Secret | None, headers: Mapping[str, Secret]) -> LLM:
        if base_url == "http://bad":
            raise ConfigError("no such host")
        return connect(base_url, api_key, headers)

    route_clients = RouteClients(config=CONFIG, naming=RouteNames(CONFIG), connect=picky)
    before = {name: route_clients(name) for name in (ROUTE, "keyed", "local")}
    routes = CONFIG.routes | {
        "a": RouteConfig(base_url="http://new"),
        "b": RouteConfig(base_url="http://bad"),
    }

    with pytest.raises(ConfigError, match="route b: no such host"):
        route_clients.prepare(replace(CONFIG, routes=routes))

    assert {name: route_clients(name) for name in before} == before
    asyncio.run(route_clients.close_retired(0.0))
    assert [llm.closed for llm in made] == [0, 0, 0, 1]


def test_wordings_are_those_of_the_settings_that_hold_now() -> None:
    """Changed wordings hold for the next call, without another client."""
    made: list[FakeLLM] = []
    naming = RouteNames(CONFIG)
    route_clients = RouteClients(config=CONFIG, naming=naming, connect=connected(made))
    assert not route_clients("same").wordings
    count = len(made)

    taught = replace(CONFIG.routes["same"], wordings={"RATE": ("not so fast",)})
    config = replace(CONFIG, routes={**CONFIG.routes, "same": taught})
    route_clients.prepare(config)(50.0)

    assert route_clients("same").wordings.class_of("Not so fast!") == "RATE"
    assert not route_clients("keyed").wordings
    assert len(made) == count
