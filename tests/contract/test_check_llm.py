"""`check` calls an LLM as agents do: to the same address, no redirect, one deadline; it shows neither secret nor terminal code."""

import asyncio

import pytest

from producer.check_llm import ask
from schemas.config import LLMConfig, Secret
from schemas.errors import ConfigError, DocllmError, UnreachableError, UnsafeStateError
from tests.contract.http_servers import Serve, response, server

KEY = Secret("sk-test-key-12345678")


def answering(answer: bytes, heads: list[bytes]) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()

    return serve


async def asked(answer: bytes, heads: list[bytes], query: str = "") -> str:
    async with server(answering(answer, heads)) as url:
        return await ask(LLMConfig(base_url=url + query, api_key=KEY, model="m"))


def test_a_redirect_is_a_failure_and_the_key_goes_nowhere_else() -> None:
    """Whoever answers may name any host in a redirect; it would be sent the key."""
    elsewhere: list[bytes] = []

    async def run() -> None:
        async with server(answering(response("200 OK", b"{}"), elsewhere)) as other:
            await asked(response("302 Found", b"", f"Location: {other}"), [])

    with pytest.raises(UnsafeStateError, match="redirect"):
        asyncio.run(run())

    assert elsewhere == []


def test_the_address_is_the_one_that_agents_call_and_its_query_is_not_shown() -> None:
    """The path stands before the query, which may hold a key."""
    heads: list[bytes] = []

    said = asyncio.run(asked(response("200 OK", b'{"model":"m"}'), heads, "?key=hunter2"))

    assert heads[0].startswith(b"POST /v1/chat/completions?key=hunter2 ")
    assert said.endswith("/v1/chat/completions answers as m")


@pytest.mark.parametrize("answer", [response("401 Unauthorized", b""), response("200 OK", b"no JSON"), b""])
def test_no_failure_shows_the_query(answer: bytes) -> None:
    """A refusal, an answer that is none and a connection that is cut name the address without it."""
    with pytest.raises(DocllmError) as failed:
        asyncio.run(asked(answer, [], "?key=hunter2"))

    assert "/v1/chat/completions" in str(failed.value)
    assert "hunter2" not in str(failed.value)


@pytest.mark.parametrize("base_url", ["http://u:hunter2@h/v1", "http://h:hunter2/v1", "http://h:99999/v1"])
def test_an_address_that_agents_refuse_is_refused(base_url: str) -> None:
    """A name, a password or a port that is none is told before any call, and not repeated."""
    with pytest.raises(ConfigError) as refused:
        asyncio.run(ask(LLMConfig(base_url=base_url, api_key=KEY)))

    assert "hunter2" not in str(refused.value)


def test_a_proxy_that_is_none_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address may hold a password."""
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "nonsense hunter2")

    with pytest.raises(UnreachableError) as failed:
        asyncio.run(ask(LLMConfig(base_url="http://h.invalid/v1", api_key=KEY)))

    assert "hunter2" not in str(failed.value)


def test_a_server_that_drips_is_left_at_the_deadline() -> None:
    """The time limit is for the whole call, not for each byte."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def run() -> None:
        async with server(drip) as url, asyncio.timeout(30):
            await ask(LLMConfig(base_url=url, api_key=KEY), timeout_s=0.2)

    with pytest.raises(UnreachableError, match="does not answer"):
        asyncio.run(run())


def test_the_models_name_cannot_act_on_a_terminal() -> None:
    """A server chooses that name: it forges no line and moves no cursor."""
    said = asyncio.run(asked(response("200 OK", b'{"model":"\\u001b[2J\\nok      topics: well"}'), []))

    assert said.isprintable()
