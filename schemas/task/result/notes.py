"""What is noted beside a result: parts of its task that the model did not get.

A note has a kind and, for most kinds, the texts of what it concerns. An export writes it as a field
of the result's line, by the name of its kind.
"""

from collections.abc import Iterable
from enum import StrEnum

import orjson

from docllm.schemas.text.wording import one_line

MAX_TEXTS = 50
MAX_CHARS = 80


class NoteKind(StrEnum):
    """The kind of a note, as the ledger stores it."""

    OMITTED = "omitted"  # parts of the document that the model did not get
    TRUNCATED_INPUT = "truncated_input"  # the server has cut the prompt


Notes = tuple[tuple[NoteKind, tuple[str, ...]], ...]


def detail(texts: Iterable[str]) -> str:
    """Return a note's texts as JSON, at most 50 of them and 80 characters of each.

    A note without texts is `true`.
    """
    distinct = list(dict.fromkeys(texts))
    if not distinct:
        return "true"
    shown = [one_line(text)[:MAX_CHARS] for text in distinct[:MAX_TEXTS]]
    if more := len(distinct) - len(shown):
        shown.append(f"and {more} more")
    return orjson.dumps(shown).decode()
