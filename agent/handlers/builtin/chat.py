"""The default handler of every type: the answer to one chat completion is the result.

A task without a prompt or a schema takes those of its type.
"""

from dataclasses import replace

from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.calls.request import chat_body
from docllm.agent.handlers.calls.results import Answer
from docllm.agent.handlers.context import Context
from docllm.agent.ports.outcome import Dead, Failure, Spent
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.line.parsing import PLACEHOLDER, TaskLine


async def chat(context: AttemptContext | Context) -> Answer | Dead:
    """Make one call and return its completion.

    The document goes into the prompt. The body of an OpenAI line is sent as it is.
    """
    task = context.task
    if task.body is not None:
        body = chat_body(task, None, context.model, context.structured)
        return await context.complete(body, schema=task.schema, verbatim=True)
    prompt, schema = context.prompt, context.schema
    if prompt is not task.prompt or schema is not task.schema:  # a copy takes a while
        task = replace(task, prompt=prompt, schema=schema)
    if problem := _problem_of(task):
        return Dead(Failure(ErrorClass.NO_PROMPT, problem), Spent())
    body = chat_body(task, await context.document(), context.model, context.structured)
    return await context.complete(body, schema=task.schema)


def _problem_of(task: TaskLine) -> str:
    """Return why the prompt and the document make no request; empty if they do."""
    if task.prompt is None:
        return f"the task has no prompt, and type {task.type} has no prompt and no handler"
    with_document = task.text is not None or task.uri is not None
    has_place = PLACEHOLDER in task.prompt
    if has_place and not with_document:
        return f"the prompt has {PLACEHOLDER}, but the task has no input"
    if with_document and not has_place:
        return f"the task has an input, but its prompt has no {PLACEHOLDER}"
    return ""
