"""What a person sees: results on stdout, everything else on stderr.

The output is live on a terminal. There is no logic here. Anybody may have chosen a batch's name, so
nothing in it is markup, and none of its control characters reaches a terminal. A command's answer
is sentences for a person, or with `--json` one JSON document for a script, and nothing else. The
document of a command that ends in an error has the name `error`; stderr says the same. A command
that costs money asks a person first.
"""

import argparse
import logging
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from typing import TYPE_CHECKING, Any

import orjson

from docllm.producer.text.output_file import give_up_standard_output, standard_output
from docllm.producer.text.printable import escaped, logs_json, shown, shown_lines
from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.executors import ThreadExecutor

if TYPE_CHECKING:
    from rich.text import Text

log = logging.getLogger("docllm.producer")

VERSION = 1
PIPED_WIDTH = 500


def width() -> int:
    """Return the terminal's width in columns, or a large width if the output is piped."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPED_WIDTH


def say(text: str) -> None:
    """Write a result line to stdout; a reader that left is no error.

    Raises ConfigError when stdout cannot be written.
    """
    try:
        with standard_output():
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
    except OSError as error:
        give_up_standard_output()
        raise ConfigError(
            f"standard output cannot be written: {error.strerror}; write to a disk with free space"
        ) from None


def say_styled(text: "Text") -> None:
    """Write coloured text to stdout: without colour unless stdout is a terminal that shows it.

    Lines stay whole; a terminal wraps them. NO_COLOR is respected.
    """
    if not sys.stdout.isatty():
        say(text.plain.expandtabs())
        return
    from rich.console import Console  # noqa: PLC0415 - it takes long to load, for terminals only

    rendered = StringIO()
    console = Console(file=rendered, force_terminal=True, highlight=False)
    console.print(text, soft_wrap=True)
    say(rendered.getvalue().removesuffix("\n"))


def say_json(value: Any) -> None:
    """Write a value as JSON to stdout; on a terminal, unsafe characters come as JSON escapes."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    say(escaped(text) if sys.stdout.isatty() else text)


def complain(text: str) -> None:
    """Write an error, with what to do next, to stderr."""
    sys.stderr.write(f"error: {shown_lines(text)}\n")


def note(text: str) -> None:
    """Write a remark to stderr."""
    sys.stderr.write(f"{shown_lines(text)}\n")


def announce(log: logging.Logger, text: str) -> None:
    """Say where a program serves: in its log if that consists of JSON objects, else on stderr."""
    if logs_json():
        log.info(text)
    else:
        note(text)


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


def require_answer(options: argparse.Namespace) -> None:
    """Raise ConfigError if nobody can be asked and --yes is not set."""
    if not options.yes and not sys.stdin.isatty():
        raise ConfigError(
            "this needs a terminal to ask you; look with --dry-run, then run it with --yes"
        )


async def agreed(options: argparse.Namespace, question: str) -> bool:
    """Return whether a person agrees, either with --yes or by an answer now."""
    if options.yes:
        return True
    note(f"{question} [y/N]")
    # A thread lets Ctrl-C be heard. It is our own thread, so that the event loop does not wait for
    # it.
    asking = ThreadExecutor("question")
    try:
        answer = await asking(sys.stdin.readline)
    finally:
        asking.close(wait=False)
    return answer.strip().lower() in {"y", "yes"}
