"""A command's answer: sentences for a person, or one JSON document for a script.

With `--json` nothing else is written to stdout. The document of a command that ends in an error has
the name `error`; stderr says the same.
"""

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from docllm.producer.screen.output import complain, note, say, say_json
from docllm.producer.text.printable import logs_json, shown
from docllm.schemas.errors import ConfigError

log = logging.getLogger("docllm.producer")

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

    def warn(self, text: str) -> None:
        """Write a remark to stderr, and keep it in the document's list of warnings."""
        self.add("warnings", text)
        note(shown(text))

    def put(self, **facts: Any) -> None:
        """Keep facts for the document."""
        self._facts |= facts

    def add(self, name: str, fact: Any) -> None:
        """Keep one fact more in a list of the document."""
        self._facts.setdefault(name, []).append(fact)

    def document(self, group: str) -> dict[str, Any]:
        """Return the whole document."""
        return {"version": VERSION, "group": group, **self._facts}


def fail(options: argparse.Namespace, text: str, **facts: Any) -> None:
    """Write an error to stderr, and with `--json` also as the command's document."""
    if logs_json():
        log.error("%s", text, extra={"code": facts.get("code")})
    else:
        complain(text)
    if getattr(options, "json", False):
        with suppress(ConfigError):  # stdout itself may be what cannot be written
            say_json({"version": VERSION, "group": options.group, "error": text, **facts})


@contextmanager
def answering(options: argparse.Namespace) -> Iterator[CommandAnswer]:
    """Yield the answer of a command; write its document when the command has not failed."""
    answer = CommandAnswer(as_json=options.json)
    yield answer
    if answer.as_json:
        say_json(answer.document(options.group))
