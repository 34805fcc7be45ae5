"""The LLM of a simulation: slow, failing or hanging, as the weather decides.

It records every call and the claim under which it ran.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from itertools import count
from urllib.parse import unquote

import orjson

from docllm.agent.ports import Call, CallFailed, Reply
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.task.failures import ErrorClass
from tests.simulation.eventloop import EPOCH_S, PROCESS
from tests.simulation.provider_limits import TOKENS_IN, TOKENS_OUT, ProviderLimits
from tests.simulation.store import Store
from tests.simulation.weather import Weather

DAY_S = 86_400
USUAL_S = 3.0
HUGE_CHARS = 6000  # more than the runs' limit of a stored reply, even packed
_PROMPT = "docllm-probe/"
ASKED_ANEW, ANSWERED_ANEW = b"Once more: ", b"once more"  # by a prompt that a replay set
_CLAIM = """
SELECT t.id, t.batch_id, t.status, t.owner, t.expires_at
FROM task t JOIN batch b ON b.id=t.batch_id WHERE b.name=? AND t.task_key=?"""

_IDS = count()  # no two answers are equal, and all have one length


@dataclass(slots=True)
class Made:
    """One call: its task, route and program, and the task's state in the ledger at that moment."""

    name: str
    label: int
    route: str
    turn: int
    at_s: float
    utc_s: float  # of the database
    program: str
    task_id: int = 0
    batch_id: int = 0
    status: int = 0
    owner: int = 0
    expires_at: str = ""
    again: bool = False  # not the first call of its attempt
    good: bool = False  # no trouble strikes its answer
    ended_s: float | None = None
    ended: str = "never"


class SimLLM:
    """One provider for all agents. A route is recognized by its model."""

    def __init__(self, *, store: Store, clock: Clock, weather: Weather) -> None:
        self._store = store
        self._clock = clock
        self._weather = weather
        self.calls: list[Made] = []
        self.called: Callable[[str], None] = lambda _program: None
        self._limits = ProviderLimits()

    def allow(self, quota: Mapping[str, int], share: float) -> None:
        """Keep the default route to a share of these limits: refuse calls beyond them."""
        self._limits.allow(quota, share)

    async def complete(self, call: Call) -> Reply | CallFailed:
        """Answer as the task's id and the weather require."""
        now_s, weather = self._clock.now_s(), self._weather
        made = self._note(call, now_s)
        self.called(made.program)
        trouble = weather.outage(made.route, now_s) or self._trouble(made.name)
        if not trouble and made.route == "default" and not self._allows(made):
            trouble = "429"
        made.good = not trouble
        latency_s = weather.latency_s(made.program, now_s, USUAL_S)
        if trouble == "hangs" or latency_s > call.timeout_s:
            await self._clock.sleep(call.timeout_s)
            return self._ended(made, CallFailed(ErrorClass.AMBIGUOUS, "no answer in time"))
        await self._clock.sleep(latency_s)
        asked = f"{made.name}, {ANSWERED_ANEW.decode()}" if ASKED_ANEW in call.body else made.name
        return self._ended(made, _answer(asked, trouble, self._clock.utc_s(), weather.rng))

    def lift_the_day(self) -> None:
        """Allow any number of calls of a day from now on."""
        self._limits.lift_the_day()

    def _allows(self, made: Made) -> bool:
        is_prompt = made.name.startswith(_PROMPT)
        day = int((EPOCH_S + made.at_s) // DAY_S)
        return self._limits.begin(made.turn, made.at_s, day, counts=not is_prompt)

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    def _note(self, call: Call, now_s: float) -> Made:
        name, _, label = call.request_id.partition("#")
        process, model = PROCESS.get(), orjson.loads(call.body).get("model")
        claim = (
            () if name.startswith(_PROMPT) else self._store.rows(_CLAIM, *_batch_and_key(name))[0]
        )
        program = process.name if process else ""
        route = "default" if model == "m" else str(model)
        made = Made(
            name,
            int(label.partition(".")[0]),
            route,
            self._store.turn(),
            now_s,
            self._store.utc_s(),
            program,
            *claim,
        )
        made.again = "." in label
        self.calls.append(made)
        return made

    def _ended(self, made: Made, answer: Reply | CallFailed) -> Reply | CallFailed:
        made.ended = str(answer.status) if isinstance(answer, Reply) else answer.error_class
        made.ended_s = self._clock.now_s()
        self._limits.end(made.turn, answered=made.good)
        return answer

    def _trouble(self, name: str) -> str:
        """Return the task's own trouble, or else a random one."""
        own = next((trouble for trouble in OF_TASKS if trouble in name), "")
        return own or next(
            (trouble for trouble in TROUBLES if self._weather.strikes(f"llm_{trouble}")), ""
        )


def _batch_and_key(name: str) -> tuple[str, bytes]:
    batch, key = name.split("/")
    return unquote(batch), unquote(key).encode()


def _answer(name: str, trouble: str, utc_s: float, rng: random.Random) -> Reply | CallFailed:
    if not trouble:
        return Reply(200, {}, _completion(f"answer to {name}"))
    if trouble == "huge":
        return Reply(200, {}, _completion(rng.randbytes(HUGE_CHARS // 2).hex()))
    answer = TROUBLES.get(trouble) or OF_TASKS[trouble]
    if isinstance(answer, Reply) and answer.status in {429, 503}:
        return Reply(answer.status, _wait(utc_s, rng), answer.body)
    return answer


def _wait(utc_s: float, rng: random.Random) -> dict[str, str]:
    """Return a wait in one of the forms that providers use."""
    wait_s = rng.choice((1, 3, 12))
    return rng.choice(
        (
            {},
            {"retry-after": str(wait_s)},
            {
                "date": formatdate(utc_s, usegmt=True),
                "retry-after": formatdate(utc_s + wait_s, usegmt=True),
            },
            {"retry-after-ms": str(wait_s * 1000)},
            {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": f"{wait_s}s"},
        )
    )


def _error(status: int, text: str, code: str = "error") -> Reply:
    return Reply(status, {}, orjson.dumps({"error": {"message": text, "type": code, "code": code}}))


def _completion(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {
        "prompt_tokens": TOKENS_IN,
        "completion_tokens": TOKENS_OUT,
        "total_tokens": TOKENS_IN + TOKENS_OUT,
    }
    head = {"id": f"c{next(_IDS):09}", "object": "chat.completion", "model": "m"}
    return orjson.dumps(head | {"choices": [choice], "usage": usage})


# The troubles of calls: random ones, or those of every call of a route in an outage.
TROUBLES: dict[str, Reply | CallFailed] = {
    "500": _error(500, "internal error"),
    "503": _error(503, "come again"),
    "429": _error(429, "slower, please", "rate_limit_exceeded"),
    "busy": _error(529, "overloaded", "overloaded_error"),
    "broke": _error(429, "you exceeded your quota", "insufficient_quota"),
    "locked": _error(401, "wrong key", "invalid_api_key"),
    "cut": CallFailed(ErrorClass.AMBIGUOUS, "the connection was cut"),
    "unreachable": CallFailed(ErrorClass.NETWORK, "no connection"),
    "hangs": CallFailed(ErrorClass.AMBIGUOUS, "no answer in time"),
    "bad": Reply(200, {}, b'{"choices": []}'),
}
# The troubles that a task's own id asks for.
OF_TASKS: dict[str, Reply | CallFailed] = {
    "refused": _error(400, "this request cannot be taken"),
    "toolong": _error(400, "the document is too long", "context_length_exceeded"),
    "filtered": _error(400, "the document was flagged", "content_filter"),
    "schema": Reply(200, {}, _completion("no JSON")),
    "broken": _error(500, "this document breaks the server"),
    "huge": CallFailed(ErrorClass.REPLY_TOO_LARGE, "never answered so"),
}
OUTAGES = {
    "500": "SERVER",
    "503": "SERVER",
    "cut": "AMBIGUOUS",
    "unreachable": "NETWORK",
    "hangs": "AMBIGUOUS",
    "bad": "SERVER",
}
REFUSALS = {"429": "RATE", "busy": "CAPACITY", "broke": "MONEY", "locked": "AUTH"}
