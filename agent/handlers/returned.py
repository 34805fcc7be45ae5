"""What a handler returns becomes JSON."""

from typing import Any

from docllm.agent.handlers.json_values import json_bytes


def as_json(result: Any) -> bytes:
    """Return a handler's result as JSON.

    Raises TypeError that says what a handler may return, and ValueError for a number that is not
    finite.
    """
    try:
        return json_bytes(result, "result")
    except TypeError as error:
        raise TypeError(
            f"the handler returned what JSON cannot hold ({error}); return an answer by itself, or "
            "dicts with text keys, lists, texts and numbers; in them, an answer is answer.text"
        ) from None
