"""The text of an answer, which is either a string or a list of parts."""

from typing import Any


def text_of(content: Any) -> Any:
    """Return the joined text of a message whose content is a list; any other content as it is.

    Some reasoning models answer with a list of parts. A list without text parts is returned as it
    is.
    """
    if not isinstance(content, list):
        return content
    parts = (part for part in content if isinstance(part, dict) and part.get("type") == "text")
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    return "".join(texts) if texts else content
