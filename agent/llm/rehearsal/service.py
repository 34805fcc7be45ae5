"""The rehearsal LLM's paths, and the plan of each call: its fault, its delay, its answer."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import orjson

from docllm.agent.llm.rehearsal import faults
from docllm.agent.llm.rehearsal.answers import example, prompt_of, summary, tokens
from docllm.agent.llm.rehearsal.faults import Faults
from docllm.agent.llm.rehearsal.provider_limits import OverLimit, ProviderLimits, RehearsedCall
from docllm.agent.llm.rehearsal.wire import Ending, Request, ResponsePlan, response
from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.clock import Clock

_MODEL = "rehearsal"
_OK = 200
_BAD_REQUEST = 400
_FORBIDDEN = 403
_NOT_FOUND = 404
_TOO_MANY = 429
_SERVER_ERROR = 500
_HUGE_CHARS = 17 << 20  # larger than any reply that an agent accepts


@dataclass(slots=True, kw_only=True, eq=False)
class CallRecord:
    """Counts of calls, and their log.

    `log` is an unbuffered file to which every start and end is appended, so that a kill loses
    nothing.
    """

    clock: Clock
    log: BinaryIO | None
    calls: Counter[str] = field(default_factory=Counter, init=False)
    statuses: Counter[str] = field(default_factory=Counter, init=False)
    faults: Counter[str] = field(default_factory=Counter, init=False)
    in_flight: int = field(default=0, init=False)

    def start(self, request_id: str, path: str) -> int:
        """Record the start of a call; return how many calls of its task have started so far.

        The task is the part of the request id before `#`.
        """
        name = request_id.partition("#")[0]
        self.calls[name] += 1
        self.in_flight += 1
        self._write("start", request_id, path=path)
        return self.calls[name]

    def end(
        self,
        request_id: str,
        status: int,
        sent_bytes: int,
        fault: str | None,
        *,
        tokens_in: int = 0,
        tokens_out: int = 0,
    ) -> None:
        """Note how a call ended; status 0 means that no whole answer was sent.

        `fault` may also be the limit that refused the call. The tokens are those that count toward
        the limits.
        """
        self.in_flight -= 1
        self.statuses[str(status)] += 1
        if fault is not None:
            self.faults[fault] += 1
        self._write(
            "end",
            request_id,
            status=status,
            bytes=sent_bytes,
            fault=fault,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
        )

    def as_json(self) -> bytes:
        """Return the counts."""
        totals = {"total": self.calls.total(), "in_flight": self.in_flight}
        return orjson.dumps(
            {**totals, "statuses": self.statuses, "faults": self.faults, "calls": self.calls}
        )

    def _write(self, event: str, request_id: str, **facts: object) -> None:
        if self.log is None:
            return
        times = {"at_s": self.clock.utc_s(), "boot_s": self.clock.now_s()}
        self.log.write(
            orjson.dumps(
                {"event": event, "id": request_id, **facts, **times},
                option=orjson.OPT_APPEND_NEWLINE,
            )
        )


@dataclass(frozen=True, slots=True)
class _PreparedReply:
    """The status and bytes of an answer, and the tokens of prompt and answer."""

    status: int
    raw: bytes
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Service:
    """Answers requests. `latency_s` is the shortest and the longest time of a call.

    With `limits`, calls above them are refused; `shows_limits` says what is left in the headers.
    """

    record: CallRecord
    dialed: Faults
    latency_s: tuple[float, float]
    seed: int
    limits: ProviderLimits | None = None
    shows_limits: bool = True

    def plan(self, request: Request) -> ResponsePlan:
        """Return the answer to a request."""
        path = request.path.partition("?")[0]
        match request.method, path:
            # A base URL without /v1 fails here as it fails at most servers.
            case "POST", _ if path.endswith("/v1/chat/completions"):
                return self._call(request)
            case "GET", _ if path.endswith("/v1/models"):
                return ResponsePlan(
                    response(
                        _OK,
                        orjson.dumps(
                            {"object": "list", "data": [{"id": _MODEL, "object": "model"}]}
                        ),
                    )
                )
            case "GET", "/stats":
                return ResponsePlan(response(_OK, self.record.as_json()))
            case "GET" | "POST", "/faults":
                return ResponsePlan(self._dial(request))
        return ResponsePlan(_error(_NOT_FOUND, "not_found", f"no such path: {path[:100]}"))

    def _dial(self, request: Request) -> bytes:
        """Return the present faults; a POST from this machine replaces them first.

        The body of a POST is a text as `--faults` takes it, or JSON.
        """
        if request.method == "POST" and not request.local:
            return _error(
                _FORBIDDEN, "not_local", "faults can only be changed from the same machine"
            )
        if request.method == "POST":
            try:
                self.dialed = _faults(request.body)
            except (ConfigError, ValueError) as wrong:
                return _error(_BAD_REQUEST, "invalid_faults", str(wrong))
        return response(_OK, orjson.dumps(self.dialed.as_mapping()))

    def _call(self, request: Request) -> ResponsePlan:
        request_id = request.headers.get("x-client-request-id", "-")
        nth = self.record.start(request_id, request.path)
        chance, share = faults.draw(self.seed, request_id.partition("#")[0], nth)
        fault = self.dialed.pick(chance)
        body = _json_object(request.body)
        answer = self._answer(body, fault)
        size = _size(body, answer)
        if self.limits is not None and (over := self.limits.begin(size)) is not None:
            return self._refused(request_id, over)
        ending = {"hang": Ending.HANG, "cut": Ending.CUT}.get(fault or "", Ending.KEEP)

        def done(sent_bytes: int, left: bool) -> None:  # noqa: FBT001 - the signature of Plan.done
            if self.limits is not None:
                self.limits.end(size)
            status = 0 if left or ending is Ending.CUT else answer.status
            self.record.end(
                request_id,
                status,
                sent_bytes,
                fault,
                tokens_in=size.tokens_in,
                tokens_out=size.tokens_out,
            )

        low, high = self.latency_s
        return ResponsePlan(
            self._with_limits(answer),
            self.dialed.slow_s if fault == "slow" else low + share * (high - low),
            ending,
            done,
        )

    def _refused(self, request_id: str, over: OverLimit) -> ResponsePlan:
        """Return the answer to a call above a limit. It comes at once."""
        headers = {"Retry-After": f"{over.retry_after_s:.3f}"} if self.shows_limits else {}
        text = f"the rehearsed limit {over.limit} is reached"
        answer = _error(_TOO_MANY, "rate_limit_exceeded", text, headers)

        def done(sent_bytes: int, left: bool) -> None:  # noqa: FBT001 - the signature of Plan.done
            self.record.end(request_id, 0 if left else _TOO_MANY, sent_bytes, over.limit)

        return ResponsePlan(answer, done=done)

    def _with_limits(self, answer: _PreparedReply) -> bytes:
        """Return the bytes of an answer, with the headers that say what is left of the limits."""
        if self.limits is None or not self.shows_limits:
            return answer.raw
        head, _, rest = answer.raw.partition(b"\r\n")
        lines = (f"{name}: {value}" for name, value in self.limits.headers().items())
        return b"\r\n".join((head, *(line.encode() for line in lines), rest))

    def _answer(self, body: dict[str, Any], fault: str | None) -> _PreparedReply:
        if fault is not None and fault.isdigit():
            return _PreparedReply(int(fault), self._failed(int(fault)))
        if fault == "quota":
            text = "You exceeded your current quota, please check your plan and billing."
            return _PreparedReply(_TOO_MANY, _error(_TOO_MANY, "insufficient_quota", text))
        try:
            text = prompt_of(body["messages"])
        except (LookupError, TypeError):
            return _bad_request("the body is not a chat completion request")
        content = "x" * _HUGE_CHARS if fault == "huge" else summary(text)
        try:
            completion = _completion(body, text, content, wrong=fault == "wrong_schema")
            reply = orjson.dumps(completion)
        # An invalid schema, or one whose answer would be too large.
        except (ValueError, orjson.JSONEncodeError) as wrong:
            return _bad_request(str(wrong))
        usage = completion["usage"]
        return _PreparedReply(
            _OK,
            response(
                _OK, reply[:-2] if fault == "malformed" else reply, {"x-request-id": "rehearsal"}
            ),
            usage["prompt_tokens"],
            usage["completion_tokens"],
        )

    def _failed(self, status: int) -> bytes:
        if status != _TOO_MANY:
            return _error(status, "rehearsed_fault", f"a rehearsed failure with status {status}")
        after = self.dialed.retry_after
        headers = {} if after is None else {"Retry-After": f"{after:g}"}
        return _error(status, "rate_limit_exceeded", "a rehearsed rate limit", headers)


def _bad_request(text: str) -> _PreparedReply:
    return _PreparedReply(_BAD_REQUEST, _error(_BAD_REQUEST, "invalid_request_error", text))


def _size(body: Mapping[str, Any], answer: _PreparedReply) -> RehearsedCall:
    """Return the size of a call; the longest answer is the answer if the request names none."""
    named = body.get("max_completion_tokens") or body.get("max_tokens")
    most_out = named if isinstance(named, int) else 0
    return RehearsedCall(
        tokens_in=answer.tokens_in,
        most_out=max(most_out, answer.tokens_out),
        tokens_out=answer.tokens_out,
    )


def _json_object(raw: bytes) -> dict[str, Any]:
    """Return the request's object; an empty one for a body that is none."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    return body if isinstance(body, dict) else {}


def _faults(body: bytes) -> Faults:
    """Return the faults that a body names.

    Raises ConfigError, or ValueError when the body is neither text nor JSON.
    """
    return (
        faults.read_faults(orjson.loads(body))
        if body.lstrip().startswith(b"{")
        else faults.parse(body.decode())
    )


def _error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> bytes:
    kind = "server_error" if status >= _SERVER_ERROR else "invalid_request_error"
    error = {"message": message, "type": kind, "param": None, "code": code}
    return response(status, orjson.dumps({"error": error}), headers)


def _completion(body: Mapping[str, Any], text: str, content: str, *, wrong: bool) -> dict[str, Any]:
    """Return a chat completion.

    `wrong` gives a value that no object schema takes or, without a schema, a reply without choices.
    """
    schema = _schema(body)
    if schema is not None:
        content = "null" if wrong else orjson.dumps(example(schema, content)).decode()
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": content},
        "finish_reason": "stop",
    }
    tokens_in, tokens_out = tokens(text), tokens(content)
    usage = {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
    }
    return {
        "id": "chatcmpl-rehearsal",
        "object": "chat.completion",
        "created": 0,
        "model": body.get("model", _MODEL),
        "choices": [] if wrong and schema is None else [choice],
        "usage": usage,
    }


def _schema(body: Mapping[str, Any]) -> Any:
    response_format = body.get("response_format")
    json_schema = response_format.get("json_schema") if isinstance(response_format, dict) else None
    return json_schema.get("schema") if isinstance(json_schema, dict) else None
