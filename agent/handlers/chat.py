"""The handler of every type without a handler of its own: one chat completion is the result.

Tested by tests/unit/agent/handlers/test_runner.py.
"""

from agent.handlers.context import Answer, Context
from agent.handlers.request import chat_body
from agent.outcome import Dead, Failure
from schemas.task.failures import ErrorClass


async def chat(context: Context) -> Answer | Dead:
    """Make one call and return its completion.

    The document goes into the prompt. The body of an OpenAI line is sent as it is.
    """
    task = context.task
    if task.body is None and task.prompt is None:
        reason = f"the task has no prompt, and type {task.type} has no handler"
        return Dead(Failure(ErrorClass.NO_PROMPT, reason), context.spent)
    body = chat_body(task, await context.document(), context.model, context.structured)
    return await context.complete(body, schema=task.schema, verbatim=task.body is not None)
