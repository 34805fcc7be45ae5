"""The LLM of a simulation: slow, failing or hanging as the weather has it. It writes down every call and whose claim it ran under."""

from dataclasses import dataclass
from urllib.parse import unquote

import orjson

from agent.lease import OWNER_BITS
from agent.ports import Call, CallFailed, Reply
from schemas.clock import Clock
from tests.simulation.eventloop import PROCESS
from tests.simulation.store import Store
from tests.simulation.weather import Weather

PROBE = "docllm-probe"


@dataclass(slots=True)
class Made:
    """One call: when it began, by which program, for which task, and what the ledger said of the task at that moment."""

    at_s: float
    program: str
    task_id: int
    status: int
    owner: int
    lost: bool  # the claim's agent had been declared lost
    ended: str = "never"

    @property
    def agent_id(self) -> int:
        """Return the incarnation that has the claim."""
        return self.owner >> OWNER_BITS


_CLAIM = """
SELECT t.id, t.status, t.owner, EXISTS (SELECT 1 FROM agent a WHERE a.id = t.owner >> 24 AND a.lost_at IS NOT NULL)
  FROM task t JOIN batch b ON b.id=t.batch_id WHERE b.name=? AND t.task_key=?"""


class SimLLM:
    """One provider account for all agents."""

    def __init__(self, *, store: Store, clock: Clock, weather: Weather) -> None:
        self._store = store
        self._clock = clock
        self._weather = weather
        self.calls: list[Made] = []

    async def complete(self, call: Call) -> Reply | CallFailed:
        """Answer as the task's id asks for, and as the weather allows."""
        batch, key = (unquote(part) for part in call.request_id.split("#")[0].split("/"))
        made = Made(self._clock.now_s(), "", 0, 0, 0, lost=False) if batch == PROBE else self._note(batch, key)
        latency_s = self._weather.delay_s("llm", 6.0) + self._weather.away_s("llm", self._clock.now_s())
        if self._weather.strikes("llm_hangs") or latency_s > call.timeout_s:
            await self._clock.sleep(call.timeout_s)
            return self._ended(made, CallFailed("AMBIGUOUS", "no answer in time"))
        await self._clock.sleep(latency_s)
        return self._ended(made, self._answer(key))

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    def _note(self, batch: str, key: str) -> Made:
        process = PROCESS.get()
        row = self._store.rows(_CLAIM, batch, key.encode())[0]
        made = Made(self._clock.now_s(), process.name if process else "", *row)
        self.calls.append(made)
        return made

    def _ended(self, made: Made, answer: Reply | CallFailed) -> Reply | CallFailed:
        made.ended = str(answer.status) if isinstance(answer, Reply) else answer.error_class
        return answer

    def _answer(self, key: str) -> Reply | CallFailed:
        if "refused" in key:
            return _error(400, "this request cannot be taken")
        for trouble, answer in _TROUBLES.items():
            if self._weather.strikes(trouble):
                return answer
        return Reply(200, {}, _completion(f"answer to {key}"))


def _error(status: int, text: str, headers: dict[str, str] | None = None) -> Reply:
    return Reply(status, headers or {}, orjson.dumps({"error": {"message": text, "type": "error"}}))


def _completion(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return orjson.dumps({"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage})


_TROUBLES: dict[str, Reply | CallFailed] = {
    "llm_500": _error(500, "internal error"),
    "llm_429": _error(429, "slower, please", {"retry-after": "3"}),
    "llm_cut": CallFailed("AMBIGUOUS", "the connection was cut"),
    "llm_unreachable": CallFailed("NETWORK", "no connection"),
    "llm_bad": Reply(200, {}, b'{"choices": []}'),
}
