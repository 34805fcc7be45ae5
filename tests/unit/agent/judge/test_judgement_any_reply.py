"""The judge has an outcome for any reply; an agent must not end because of one.

It would read the record again and again.
"""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.agent.judge import judge
from docllm.agent.ports import Reply
from docllm.agent.ports.outcome import Dead, Retry, Snooze, Succeeded
from tests.support.replies import FACTS, completion

DEEP = b"[" * 1000 + b"]" * 1000
LARGE = "9" * 5000
CIRCLE = {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}, "type": "array"}}}
NAMES = st.sampled_from(
    "error code status message metadata choices finish_reason content refusal usage "
    "prompt_tokens model type".split()
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
STATUSES = st.sampled_from(
    [200, 204, 302, 400, 402, 404, 413, 429, 499, 500, 503, 529, 599]
) | st.integers(0, 1000)
PARTS = (
    "Mon Fri, 31 Dec 9999 0001 23:59:59 GMT +2359 -9999 - + : , T Z 1.5 e \u0663 "
    "99999999999999999999 nan 1e309 s ms"
).split()
TIMES = st.lists(st.sampled_from(PARTS), max_size=7).map(" ".join) | st.text(max_size=8)
HEADERS = st.dictionaries(
    st.sampled_from(
        "retry-after retry-after-ms date x-ratelimit-reset-tokens x-request-id".split()
    ),
    TIMES,
    max_size=3,
)


def judged(reply: Reply, **facts: Any) -> object:
    outcome = judge(reply, replace(FACTS, **facts))
    assert isinstance(outcome, Succeeded | Retry | Snooze | Dead)
    orjson.dumps(outcome.spent)
    return outcome


HOSTILE = {
    "a code of many digits": (200, orjson.dumps({"error": {"code": LARGE}})),
    "a code of many digits in an error": (500, orjson.dumps({"error": {"code": LARGE}})),
    "a deep reason": (
        200,
        completion(reason=0).replace(b'"finish_reason":0', b'"finish_reason":' + DEEP),
    ),
    "a deep refusal": (
        200,
        completion(message={"refusal": 7}).replace(b'"refusal":7', b'"refusal":[' + DEEP + b"]"),
    ),
    "a deep error": (200, b'{"error":[' + DEEP + b"]}"),
    "a deep message": (400, b'{"error":{"message":' + DEEP + b"}}"),
    "a deep usage": (200, completion(usage=0).replace(b'"usage":0', b'"usage":' + DEEP)),
    "a deep answer": (200, completion("[" * 500 + "]" * 500)),
    "an answer of many digits": (200, completion(LARGE)),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("schema", [None, {"type": "object"}, CIRCLE])
def test_a_hostile_reply_has_an_outcome(name: str, schema: dict[str, Any] | None) -> None:
    """Replies that are nested deep, or long, are neither followed nor counted."""
    status, body = HOSTILE[name]

    judged(Reply(status, {}, body), schema=schema)
    judged(Reply(status, {}, body), schema=schema, verbatim=True)


@given(status=STATUSES, headers=HEADERS, value=JSON)
def test_any_json_has_an_outcome(status: int, headers: dict[str, str], value: Any) -> None:
    """Any JSON has an outcome, with any status and headers."""
    judged(Reply(status, headers, orjson.dumps(value)))


@given(reason=JSON, message=JSON, more=JSON)
def test_any_completion_has_an_outcome(reason: Any, message: Any, more: Any) -> None:
    """Any part of a completion may differ from the protocol."""
    choice = {
        "finish_reason": reason,
        "message": {"content": message} | (message if isinstance(message, dict) else {}),
    }

    judged(
        Reply(200, {}, orjson.dumps({"choices": [choice], "usage": more, "model": more})),
        schema={"type": "array"},
    )


@given(status=STATUSES, body=st.binary(max_size=60))
def test_any_bytes_have_an_outcome(status: int, body: bytes) -> None:
    """Any bytes have an outcome, because a proxy may answer anything."""
    judged(Reply(status, {}, body))
