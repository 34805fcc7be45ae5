"""The handler of every type without a handler of its own: one chat completion is the result."""

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
        return Dead(
            Failure(
                ErrorClass.NO_PROMPT, f"the task has no prompt, and type {task.type} has no handler"
            ),
            context.spent,
        )
    document = await context.document()
    return await context.complete(
        chat_body(task, document, context.model), schema=task.schema, verbatim=task.body is not None
    )
