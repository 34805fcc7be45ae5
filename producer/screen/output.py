"""What a person sees: results on stdout, everything else on stderr.

The output is live on a terminal. There is no logic here. Anybody may have chosen a batch's name, so
nothing in it is markup, and none of its control characters reaches a terminal.
"""

import shutil
import sys
from io import StringIO
from typing import TYPE_CHECKING, Any

import orjson

from docllm.producer.text.output_file import give_up_standard_output, standard_output
from docllm.producer.text.printable import escaped, shown_lines
from docllm.schemas.errors import ConfigError

if TYPE_CHECKING:
    from rich.text import Text

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
