"""A command's answer: sentences for a person, or one JSON document for a script.

With `--json` nothing else is written to stdout. A command that ends in an error writes no document:
the exit code and stderr say what is wrong.

Tested by tests/integration/test_json.py.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from producer.screen.output import say, say_json

VERSION = 1


class CommandAnswer:
    """Collects the facts of a document, or writes sentences as they come."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._facts: dict[str, Any] = {}

    def say(self, text: str, **facts: Any) -> None:
        """Write a sentence, or keep the facts that it states."""
        self.put(**facts)
        if not self.as_json:
            say(text)

    def put(self, **facts: Any) -> None:
        """Keep facts for the document."""
        self._facts |= facts

    def add(self, name: str, fact: Any) -> None:
        """Keep one fact more in a list of the document."""
        self._facts.setdefault(name, []).append(fact)

    def document(self, group: str) -> dict[str, Any]:
        """Return the whole document."""
        return {"version": VERSION, "group": group, **self._facts}


@contextmanager
def answering(options: argparse.Namespace) -> Iterator[CommandAnswer]:
    """Yield the answer of a command; write its document when the command has not failed."""
    answer = CommandAnswer(as_json=options.json)
    yield answer
    if answer.as_json:
        say_json(answer.document(options.group))
