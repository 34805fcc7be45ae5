"""What a spreadsheet takes for a formula, and how to tell a table that docllm exported."""

import re

# A table that begins with these columns was exported by docllm.
EXPORTED = ("id", "status", "result", "error.code")

_NUMBER = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def is_formula(text: str) -> bool:
    """Return whether a spreadsheet would take a text for a formula; an export marks it with `'`."""
    return text.startswith(_FORMULA) and _NUMBER.fullmatch(text) is None
