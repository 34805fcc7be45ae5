"""Checks each report against rules, and returns the list of its problems."""

import json
from typing import Any

from docllm import Context, GiveUpError

RULES = "The report names its author. Each figure has a unit. No person is blamed by name."
ANSWER = {
    "type": "object",
    "properties": {
        "problems": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"rule": {"type": "string"}, "quote": {"type": "string"}},
                "required": ["rule", "quote"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["problems"],
    "additionalProperties": False,
}


async def check(context: Context) -> list[dict[str, Any]]:
    """Return the problems of the task's document; an empty list if it has none."""
    document = await context.document()
    if document is None:
        raise GiveUpError("a check needs an input")
    schema = {"name": "problems", "schema": ANSWER}
    answer = await context.complete(
        {
            "model": context.model,
            "messages": [
                {"role": "system", "content": f"List what breaks these rules. {RULES}"},
                {"role": "user", "content": document},
            ],
            "response_format": {"type": "json_schema", "json_schema": schema},
        },
        schema=ANSWER,
    )
    problems: list[dict[str, Any]] = json.loads(answer.text)["problems"]
    return problems
