"""Retries a failed call within the attempt if the failure is temporary.

An attempt that makes many calls would otherwise repeat all of them for one that was refused.
"""

from collections.abc import Mapping
from typing import Any

from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.calls.results import Answer, CallRefusedError
from docllm.agent.judge.classes import CLASSES, Action, Effect
from docllm.agent.ports.outcome import Dead, Retry, Snooze

MAX_AGAIN = 3  # retries after counted failures; a refusal for a limit is retried until time is up
FIRST_WAIT_S = 1.0


async def complete(
    context: AttemptContext, body: Mapping[str, Any], *, schema: dict[str, Any] | None = None
) -> Answer:
    """Make a chat completion as `Context.complete` does, and retry it after a temporary failure."""
    failures = 0
    while True:
        try:
            return await context.complete(body, schema=schema)
        except CallRefusedError as error:
            refused = error
        outcome = refused.outcome
        if not isinstance(outcome, Retry | Snooze | Dead):
            raise refused
        rule = CLASSES.get(outcome.failure.error_class)
        if rule is not None and rule.route is Effect.REFUSAL:
            asked_s = outcome.delay_s if isinstance(outcome, Snooze) else 0.0
            await context.call_again(refused, max(FIRST_WAIT_S, asked_s))
            continue
        failures += 1
        if rule is None or rule.action is not Action.RETRY or failures > MAX_AGAIN:
            raise refused
        await context.call_again(refused, FIRST_WAIT_S * 2 ** (failures - 1))
