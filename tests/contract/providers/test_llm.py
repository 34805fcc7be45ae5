"""The port `LLM`: what a provider or another server can do to a call, and its result."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from docllm.agent.llm.client import ChatClient
from docllm.agent.ports import CallFailed, Reply
from docllm.agent.routes.clients import RouteClients
from docllm.agent.routes.names import RouteNames
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.config import Config, LLMConfig, RouteConfig, Secret
from tests.contract.providers.http_servers import (
    KEY,
    answering,
    call,
    client,
    ended,
    request,
    response,
    server,
)
from tests.servers.process import free_port


@pytest.fixture(scope="module")
def rehearsal() -> Iterator[str]:
    """One rehearsal LLM, as the program that people start."""
    command = [sys.executable, "-m", "agent", "rehearsal-llm", "--latency", "0.5"]
    child = subprocess.Popen(
        command, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    yield child.stdout.readline().strip()
    child.terminate()
    assert child.wait(60) == 0
    child.stdout.close()


async def test_a_completion(rehearsal: str) -> None:
    """A call to a working server gives its status, headers in lower case, and body."""
    async with client(rehearsal) as llm:
        reply = await llm.complete(call())

    assert isinstance(reply, Reply)
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert json.loads(reply.body)["choices"][0]["message"]["content"] == "Sales rose. Costs fell."


def test_a_thousand_calls_at_once(rehearsal: str) -> None:
    """A thousand calls of half a second are in flight together.

    None fails, and each is made once.
    """

    async def run() -> tuple[list[Reply | CallFailed], float]:
        loop = asyncio.get_running_loop()
        async with client(rehearsal) as llm:
            began_s = loop.time()
            replies = await asyncio.gather(
                *(llm.complete(call(30, f"many/{number}#1")) for number in range(1000))
            )
            return replies, loop.time() - began_s

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        replies, took_s = runner.run(run())

    assert {reply.status for reply in replies if isinstance(reply, Reply)} == {200}
    assert not [reply for reply in replies if isinstance(reply, CallFailed)]
    assert took_s < 20  # One after another they would take 500 s, a hundred at a time 5 s and more.


async def test_a_call_is_a_post_with_request_id_key_and_body() -> None:
    """The request is a POST with our request id, the key and the given body.

    The key is in no repr.
    """
    heads = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await request(reader)).decode().lower())
        writer.write(response("200 OK", b"{}"))

    async with server(serve) as url, client(f"{url}/") as llm:
        await llm.complete(call(request_id="a%20b/t#2"))
        await llm.complete(replace(call(), traceparent="00-aa-bb-01"))
        shown = repr(vars(llm))

    assert heads[0].startswith("post /v1/chat/completions http/1.1")
    assert "x-client-request-id: a%20b/t#2" in heads[0]
    assert ["traceparent: 00-aa-bb-01" in head for head in heads] == [False, True]
    assert f"authorization: bearer {KEY.reveal()}" in heads[0]
    assert KEY.reveal() not in shown


async def test_headers_of_the_account_go_with_each_call_and_are_not_shown() -> None:
    """A gateway gets them as they were written; without a key there is no bearer."""
    heads = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await request(reader)).decode())
        writer.write(response("200 OK", b"{}"))

    given = {"api-key": Secret("azure-secret-1"), "User-Agent": Secret("own agent")}
    async with server(serve) as url, client(url, api_key=None, headers=given) as llm:
        await llm.complete(call())
        shown = repr(vars(llm))

    lines = heads[0].lower().split("\r\n")
    assert "api-key: azure-secret-1" in lines
    assert [line for line in lines if line.startswith("user-agent")] == ["user-agent: own agent"]
    assert "authorization" not in heads[0].lower()
    assert "azure-secret-1" not in shown


async def test_a_connection_is_used_again() -> None:
    """Calls one after another share one connection."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            await request(reader)
            writer.write(response("200 OK", b"{}"))

    async with server(serve) as url, client(url) as llm:
        for _ in range(5):
            assert isinstance(await llm.complete(call()), Reply)

    assert connections == 1


async def test_a_cut_call_is_not_made_again_behind_our_back() -> None:
    """A kept connection is cut in the middle of the second call, which fails.

    The client does not repeat the call.
    """
    seen = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        while True:
            await request(reader)
            seen += 1
            if seen == 2:
                return
            writer.write(response("200 OK", b"{}"))

    async with server(serve) as url, client(url) as llm:
        first, second = await llm.complete(call()), await llm.complete(call())

    assert isinstance(first, Reply)
    assert isinstance(second, CallFailed)
    assert second.error_class == "AMBIGUOUS"
    assert seen == 2


async def test_a_redirect_is_not_followed() -> None:
    """A redirect is an answer: the key is not sent to another address."""
    reply = await ended(answering(response("307 Moved", b"", "Location: http://127.0.0.1:1/")))

    assert isinstance(reply, Reply)
    assert (reply.status, reply.headers["location"]) == (307, "http://127.0.0.1:1/")


@pytest.mark.parametrize("sizes", [[1, 2, 3], [70_000, 1, 70_000], [65_536], [65_536, 65_536]])
async def test_a_reply_that_comes_in_pieces_is_whole(sizes: list[int]) -> None:
    """Whether they are smaller or larger than what the client reads in one step."""
    body = bytes(number % 251 for number in range(sum(sizes)))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(response("200 OK", body)[: -len(body)])
        sent = 0
        for size in sizes:
            await writer.drain()
            await asyncio.sleep(0.02)  # so that the client gets them one after the other
            writer.write(body[sent : sent + size])
            sent += size
        await reader.read()  # the connection stays open

    reply = await ended(serve)
    assert isinstance(reply, Reply)
    assert reply.body == body


async def test_of_a_header_that_comes_twice_the_last_value_counts() -> None:
    twice = response("200 OK", b"{}", "X-Request-Id: r1", "X-Request-Id: r2", "X-Other: o")
    reply = await ended(answering(twice))
    assert isinstance(reply, Reply)
    assert (reply.headers["x-request-id"], reply.headers["x-other"]) == ("r2", "o")


async def test_a_header_that_is_no_text_loses_no_reply() -> None:
    """A paid answer is kept when one of its headers cannot be read."""
    reply = await ended(answering(response("200 OK", b"{}", "X-Odd: \xff\xfe", "X-Request-Id: r1")))

    assert isinstance(reply, Reply)
    assert reply.headers == {"x-request-id": "r1", "content-length": "2"}


async def test_a_cancelled_call_ends_at_once() -> None:
    """A cancellation passes through, and does not wait for the call's own timeout."""
    arrived = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        arrived.set()
        await reader.read()

    async with server(serve) as url, client(url) as llm:
        running = asyncio.create_task(llm.complete(call(timeout_s=60)))
        await arrived.wait()
        running.cancel()
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(asyncio.CancelledError):
            await running

        assert asyncio.get_running_loop().time() - began_s < 30
        assert running.cancelled()


async def test_cancelled_calls_do_not_block_the_next() -> None:
    """The connections of cancelled calls live on for a while, but block no other calls."""
    hung, all_hang = 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal hung
        await request(reader)
        hung += 1
        if hung == 50:
            all_hang.set()
        if hung <= 50:
            await reader.read()
        writer.write(response("200 OK", b"{}"))

    async with server(serve) as url, client(url) as llm:
        running = [asyncio.create_task(llm.complete(call(timeout_s=60))) for _ in range(50)]
        await all_hang.wait()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

        assert isinstance(await llm.complete(call(timeout_s=30)), Reply)


async def test_a_proxy_from_the_environment_is_not_used_for_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """HTTP_PROXY does not apply to a server on this machine."""
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")

    assert isinstance(await ended(answering(response("200 OK", b"{}"))), Reply)


async def test_calls_after_the_end_are_values() -> None:
    """A call on a closed client fails like any other call."""
    llm = ChatClient(base_url="http://127.0.0.1:1", api_key=None)
    await llm.close()

    assert isinstance(await llm.complete(call()), CallFailed)


@pytest.mark.parametrize("key", ["", "two words", "sk-\u00e4\u00f6\u00fc", "sk-\nx"])
def test_an_invalid_key_is_refused(key: str) -> None:
    """A key that no header can hold is refused at the start and is not shown."""
    with pytest.raises(ConfigError) as refused:
        ChatClient(base_url="http://127.0.0.1:1", api_key=Secret(key))

    assert not key or key not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["http://256.256.256.256/v1", "http://<host>/v1", "http://{host}/v1"]
)
def test_an_invalid_address_is_refused(url: str) -> None:
    """An invalid address is refused at the start, with its route.

    Otherwise each call would raise, and use up an attempt of its task.
    """
    config = Config(
        llm=LLMConfig(base_url="http://127.0.0.1:1"), routes={"fast": RouteConfig(base_url=url)}
    )

    with pytest.raises(ConfigError, match=r"route fast: llm\.base_url"):
        RouteClients(
            config=config,
            naming=RouteNames(config),
            connect=lambda base_url, api_key, headers: ChatClient(
                base_url=base_url, api_key=api_key, headers=headers
            ),
        )
