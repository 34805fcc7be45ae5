"""The types of task that every program of this version knows.

A type decides which handler runs a task. Any other type is one of a person's own, and needs a
section `[types.NAME]` in the settings.
"""

import re

DOCUMENT = "document"
OPENAI = "openai"  # the type of a line of the OpenAI batch API
MAP_REDUCE = "map-reduce"  # a document of any length: in parts, whose answers are merged
BUILT_IN = frozenset({DOCUMENT, OPENAI, MAP_REDUCE})

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a type, or of a tenant."""
    return _NAME.fullmatch(text) is not None
