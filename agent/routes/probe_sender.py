"""Sends the cheap prompt, which shows whether the provider or the tasks are at fault.

`probe_schedule` says when it goes.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from itertools import count
from urllib.parse import quote

import orjson

from docllm.agent.judge import Effect
from docllm.agent.ports import Call, Clock
from docllm.agent.routes.clients import RouteClients
from docllm.agent.routes.evidence import RouteEvidence, by_answer
from docllm.agent.routes.route import RouteCall
from docllm.agent.routes.router import Router
from docllm.schemas.codes import Code

log = logging.getLogger(__name__)

CHECK_EVERY_S = 0.25
PROMPT = "Reply with OK."
MAX_TOKENS = 16


@dataclass(slots=True, kw_only=True, eq=False)
class ProbeSender:
    """Sends the prompt by the clients of routes, with the request id `docllm-probe/ROUTE#N`."""

    routes: Router
    route_clients: RouteClients
    clock: Clock
    _numbers: "count[int]" = field(default_factory=lambda: count(1), init=False)

    async def run(self) -> None:
        """Send due prompts until cancelled; a cancel ends the running prompts too."""
        async with asyncio.TaskGroup() as group:
            while True:
                for call in self.routes.prompts(self.clock.now_s()):
                    group.create_task(self._probe(call))
                await self.clock.sleep(CHECK_EVERY_S)

    async def send_prompt(self, route: str, limit_s: float | None = None) -> RouteEvidence:
        """Send the prompt once; return the evidence of its answer.

        Its time limit is `limit_s`, or else the route's own.
        """
        client = self.route_clients(route)
        body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": MAX_TOKENS}
        model_field = {"model": client.model} if client.model else {}
        request_id = f"docllm-probe/{quote(route, safe='')}#{next(self._numbers)}"
        call = Call(orjson.dumps(model_field | body), request_id, limit_s or client.timeout_s)
        return by_answer(await client.llm.complete(call), client.wordings)

    async def _probe(self, call: RouteCall) -> None:
        evidence = RouteEvidence(Effect.NONE)
        try:
            evidence = await self.send_prompt(call.route, call.limit_s)
        except Exception:
            log.exception(
                "the probe of route %s ended in a bug",
                call.route,
                extra={"code": Code.INTERNAL_ERROR},
            )
        finally:
            self.routes.answered(call, evidence, self.clock.now_s())
