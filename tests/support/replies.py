"""Helpers for tests of the judge: an attempt's facts, providers' bodies, and short outcomes."""

from typing import Any

import orjson
import pytest

from docllm.agent.judge import JudgeFacts, judge, tiers_of
from docllm.agent.ports import Reply
from docllm.agent.ports.outcome import Dead, Retry, Snooze

SNOOZED, RETRIED, DEAD = "snoozed", "retried", "dead"
FACTS = JudgeFacts(
    model="m",
    request_id="b/t#1",
    duration_ms=1200,
    counted_before=0,
    max_attempts=5,
    snoozes=0,
    tiers=tiers_of(("30s", "5m", "1h")),
    jitter=0.5,
    utc_s=1_800_000_000.0,
)


def error(message: str = "", **fields: Any) -> bytes:
    return orjson.dumps({"error": {"message": message, **fields}})


def completion(content: Any = "Fine.", reason: Any = "stop", **fields: Any) -> bytes:
    message = {"role": "assistant", "content": content, **fields.pop("message", {})}
    usage = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}
    return orjson.dumps(
        {
            "model": "m-1",
            "choices": [{"message": message, "finish_reason": reason}],
            "usage": usage,
            **fields,
        }
    )


def class_of(status: int, body: bytes, **headers: str) -> str:
    outcome = judge(Reply(status, headers, body), FACTS)
    assert isinstance(outcome, Retry | Snooze | Dead)
    return outcome.failure.error_class


def became(outcome: object) -> tuple[object, ...]:
    """Return the outcome of a task, its tier, and how long it waits."""
    match outcome:
        case Snooze(_, _, delay_s):
            return SNOOZED, pytest.approx(delay_s)
        case Retry(_, _, tier, delay_s):
            return RETRIED, tier, pytest.approx(delay_s)
        case Dead(_, _, disposition):
            return DEAD, disposition
    raise AssertionError(outcome)
