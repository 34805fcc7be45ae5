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


def bounded(texts: Iterable[str]) -> tuple[str, ...]:
    """Return texts that fit into a result: distinct, few, short, and each on one line.

    The last one counts those that are left out. Bounded texts stay as they are.
    """
    distinct = list(dict.fromkeys(texts))
    shown = [one_line(text)[:MAX_CHARS] for text in distinct[:MAX_TEXTS]]
    if len(distinct) > MAX_TEXTS:
        shown[-1] = f"and {len(distinct) - MAX_TEXTS + 1} more"
    return tuple(shown)


def detail(texts: Iterable[str]) -> str:
    """Return a note's texts as JSON; a note without texts is `true`."""
    shown = bounded(texts)
    return orjson.dumps(shown).decode() if shown else "true"
