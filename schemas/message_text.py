"""The text of an answer, which is a string or a list of parts."""

from typing import Any


def text_of(content: Any) -> Any:
    """Return a message's content, and of a list of parts, as some reasoning models answer, all text together; what has none as it is."""
    if not isinstance(content, list):
        return content
    named = (part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text")
    texts = [text for text in named if isinstance(text, str)]
    return "".join(texts) if texts else content
