"""The cheap prompt, which tells a provider's fault from a task's."""

import asyncio
import logging

import orjson
import pytest

from docllm.agent.judge import Effect
from docllm.agent.ports import CallFailed, Reply
from docllm.agent.routes import Router
from docllm.agent.routes.clients import RouteClients
from docllm.agent.routes.probe_sender import ProbeSender
from docllm.schemas.settings.config import Config, LLMConfig
from docllm.schemas.task.failures import ErrorClass
from tests.support.routes import ROUTE, call, failed, stopped
from tests.unit.agent.routes.test_clients import FakeLLM


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
    router = stopped()
    for now_s in (102.0, 105.0):
        call(router, failed(), now_s, task_id=7)
    router.room(ROUTE, 109.0, 0, 64)
    return router


def prober(router: Router, llm: FakeLLM, at_s: float = 109.0) -> ProbeSender:
    config = Config(llm=LLMConfig(base_url="http://main", model="mini"))
    route_clients = RouteClients(config=config, naming=router.naming, connect=lambda *_: llm)
    return ProbeSender(routes=router, route_clients=route_clients, clock=StepClock(at_s))


def ran(sender: ProbeSender) -> None:
    """Let the duty look once."""
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(sender.run())


def test_the_prompt_is_sent_when_it_is_due() -> None:
    """The prompt has a few tokens and a telling id; its answer opens the route."""
    router, llm = due(), FakeLLM()
    ran(prober(router, llm))

    (sent,) = llm.calls
    body = orjson.loads(sent.body)
    assert (sent.request_id, sent.timeout_s, body["max_tokens"]) == (
        "docllm-probe/default#1",
        60.0,
        16,
    )
    assert body["messages"] == [{"role": "user", "content": "Reply with OK."}]
    assert not router.closed(ROUTE, 109.0)


def test_nothing_is_sent_before() -> None:
    """No prompt is sent on routes that are well, nor while tasks serve as probes."""
    llm = FakeLLM()
    ran(prober(stopped(), llm))

    assert llm.calls == []


def test_a_prompt_that_hangs_makes_no_room_for_tasks() -> None:
    """A prompt that hangs after a resume makes room for one task, and not for a second.

    A second task would be given back at once.
    """
    router = due()
    assert router.prompts(109.0)
    router.resume(ROUTE, 110.0)

    assert router.room(ROUTE, 110.0, 0, 64) == 1
    assert router.begin(ROUTE, 1, 110.0) is not None
    assert router.room(ROUTE, 110.0, 1, 64) == 0


@pytest.mark.parametrize("answer", [CallFailed(ErrorClass.NETWORK, "refused"), Reply(503, {}, b"")])
def test_a_prompt_that_fails_leaves_the_route_stopped(answer: Reply | CallFailed) -> None:
    """A failed prompt leaves the route stopped, and a task has the next turn."""
    router = due()
    ran(prober(router, FakeLLM(answer=answer)))

    assert router.closed(ROUTE, 109.0)
    assert router.room(ROUTE, 114.0, 0, 64) == 1


def test_a_bug_in_the_prompt_ends_no_agent(caplog: pytest.LogCaptureFixture) -> None:
    """A bug in the prompt is logged and says nothing about the route."""
    router = due()
    ran(prober(router, FakeLLM(answer=RuntimeError("oops"))))

    assert router.closed(ROUTE, 109.0)
    assert [record.levelno for record in caplog.records][-1] == logging.ERROR


def test_others_may_ask_too() -> None:
    """Others may send the prompt, with the route's own model and limit.

    Route names are encoded in the id.
    """
    llm = FakeLLM()
    sender = prober(stopped(), llm)

    assert asyncio.run(sender.send_prompt("other/model", 7.0)).effect is Effect.UP
    assert (llm.calls[0].request_id, llm.calls[0].timeout_s) == (
        "docllm-probe/other%2Fmodel#1",
        7.0,
    )
    assert orjson.loads(llm.calls[0].body)["model"] == "other/model"
