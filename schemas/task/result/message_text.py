"""The text of an answer, which is either a string or a list of parts."""

from typing import Any

# Where servers put the thoughts of a model beside its answer.
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")

_TEXTS = ("text", "output_text")


def text_of(content: Any) -> Any:
    """Return the joined text of a message whose content is a list; any other content as it is.

    Some reasoning models answer with a list of parts. A list without text parts is returned as it
    is.
    """
    if not isinstance(content, list):
        return content
    parts = (part for part in content if isinstance(part, dict) and part.get("type") in _TEXTS)
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    return "".join(texts) if texts else content


def is_empty(content: Any) -> bool:
    """Return whether a content, as `text_of` returns it, has no answer.

    A list of parts without a text has none; any other list is JSON.
    """
    if isinstance(content, list):
        return all(isinstance(part, dict) and "type" in part for part in content)
    return content is None or (isinstance(content, str) and not content.strip())


def refusal_of(message: dict[str, Any]) -> Any:
    """Return what the model says instead of an answer, in a field or a part of its own."""
    if (refusal := message.get("refusal")) or not isinstance(message.get("content"), list):
        return refusal
    parts = (part for part in message["content"] if isinstance(part, dict))
    return next((part["refusal"] for part in parts if part.get("refusal")), None)


def thoughts_of(message: dict[str, Any]) -> tuple[str, str]:
    """Return the field with the model's thoughts, and their text; two empty texts without any."""
    for name in _THOUGHTS:
        if isinstance(text := message.get(name), str) and text.strip():
            return name, text
    return "", ""
