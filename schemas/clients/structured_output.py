"""Builds the request fields for structured output.

Pure.
"""

from typing import Any

from docllm.schemas.settings.config import Structured


def response_format(schema: Any, form: Structured) -> dict[str, Any]:
    """Return the fields that ask for such an answer, in the form that the server knows.

    Servers that know `json_object` alone either take the schema beside it, as llama.cpp's Python
    server and Together do, or ignore it. Without a form, only the prompt asks.
    """
    match form:
        case Structured.JSON_SCHEMA:
            value = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        case Structured.JSON_OBJECT:
            value = {"type": "json_object", "schema": schema}
        case Structured.NONE:
            return {}
    return {"response_format": value}
