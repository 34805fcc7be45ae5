"""Judges a reply here, or in a child process if judging would hold the interpreter's lock."""

from dataclasses import replace
from functools import partial
from typing import Any

from docllm.agent.judge import JudgeFacts, judge, unjudged
from docllm.agent.ports import CallFailed, Reply
from docllm.agent.ports.outcome import Dead, Failure, Retry, Snooze, Succeeded
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.line.schema_cost import is_heavy_for
from docllm.schemas.text.untrusted import contained, describe_error, sealed
from docllm.schemas.text.wording import one_line

# A larger body is parsed in the child process: parsing it here would stop all threads, including
# the heartbeat.
PARSE_APART_BYTES = 1 << 20
_TOO_LONG = Failure(
    ErrorClass.BAD_OUTPUT,
    "the answer takes too long to check against the schema; simplify the schema: fewer "
    "alternatives, shorter enums, patterns without look-arounds",
)

Judged = Succeeded | Retry | Snooze | Dead


async def judged(reply: Reply | CallFailed, facts: JudgeFacts, apart: Executor) -> Judged:
    """Return the outcome of a call."""
    if not isinstance(reply, Reply):
        return judge(reply, facts)
    if len(reply.body) <= PARSE_APART_BYTES and not (
        facts.schema is not None and _is_heavy_for(facts.schema, reply)
    ):
        return judge(reply, facts)
    try:
        return await apart(partial(sealed, partial(judge, reply, facts)))
    except TimeoutError:
        return unjudged(_TOO_LONG, reply, await _without_schema(reply, facts, apart), facts)
    except Exception as error:  # noqa: BLE001 - a reply that kills two children is at fault
        text = one_line(f"the reply ended the process that judged it: {describe_error(error)}")
        failure = Failure(ErrorClass.BAD_OUTPUT, text)
        return unjudged(failure, reply, await _without_schema(reply, facts, apart), facts)


def _is_heavy_for(schema: dict[str, Any], reply: Reply) -> bool:
    """Return whether checking takes long; a schema on which the estimate fails counts as heavy."""
    try:
        with contained():
            return is_heavy_for(schema, reply.body)
    except Exception:  # noqa: BLE001 - the child finds out
        return True


async def _without_schema(reply: Reply, facts: JudgeFacts, apart: Executor) -> Judged | None:
    """Judge the reply without its schema, only to learn its cost; None if that fails too."""
    try:
        return await apart(partial(sealed, partial(judge, reply, replace(facts, schema=None))))
    except Exception:  # noqa: BLE001 - its cost stays unknown
        return None
