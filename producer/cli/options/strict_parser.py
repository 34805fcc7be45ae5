"""The parser of every command line: exact names, errors that name the nearest one.

It imports nothing slow, and a command's own module only when the command runs. So `--help` and
`--version` answer at once.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeVar

from docllm.producer.text.printable import shown
from docllm.schemas.runtime.collector import resting
from docllm.schemas.runtime.next_command import as_called
from docllm.schemas.text.wording import did_you_mean
from docllm.schemas.version import VERSION

_Options = TypeVar("_Options")


class Imported:
    """A function that is named as `package.module:function`, and imported when it is called."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, *values: Any) -> Any:
        """Import the function and call it."""
        return self.function()(*values)

    def function(self) -> Any:
        """Import the function and return it."""
        module, _, name = self.path.partition(":")
        with resting():
            return getattr(importlib.import_module(module), name)


class Parser(argparse.ArgumentParser):
    """A parser that accepts only complete option names, and quotes a refused argument.

    Its subcommands have parsers of the same kind.
    """

    def __init__(self, prog: str | None = None, **settings: Any) -> None:
        if "epilog" in settings:  # its lines must not be wrapped
            settings["formatter_class"] = argparse.RawDescriptionHelpFormatter
            settings["epilog"] = as_called(settings["epilog"])
        super().__init__(prog and as_called(prog), allow_abbrev=False, **settings)
        # Hints for options that people know from other programs and that do not exist here.
        self.not_options: dict[str, str] = {}

    def require_command(self, words: Sequence[str]) -> None:
        """End with exit code 2 unless the first word is a command of this parser."""
        self._refuse_unknown(self._options_of(words[:1]))
        for action in self._command_actions():
            self._check_value(action, words[0])

    def _command_actions(self) -> Iterable["argparse._SubParsersAction[Any]"]:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - it has no other name
                yield action

    def add_version(self) -> None:
        """Add the option that prints the version."""
        self.add_argument("--version", action="version", version=f"docllm {VERSION}")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: _Options | None = None
    ) -> tuple[_Options, list[str]]:
        """Parse the arguments; an argument that this command does not know is an error.

        An unknown option is found first, because its value would be taken for a command.
        """
        if args is not None:
            self._refuse_unknown(self._options_of(args))
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse_unknown(word for word in unknown if word.startswith("-"))
            self.error(f"unexpected argument {unknown[0]!r}{_quoting(unknown[0])}")
        return options, []  # type: ignore[return-value]

    def _options_of(self, words: Sequence[str]) -> Iterable[str]:
        """Yield the words that can only be options of this command, not of its subcommands."""
        for word in words:
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                return
            if word.startswith("--") and " " not in word:
                yield word

    def _refuse_unknown(self, words: Iterable[str]) -> None:
        options = self._option_string_actions
        for word in words:
            name = word.partition("=")[0]
            if name in self.not_options:
                self.error(f"unknown option {name}; {self.not_options[name]}")
            if name not in options:
                names = [
                    option
                    for option, action in options.items()
                    if option.startswith("--") and action.help != argparse.SUPPRESS
                ]
                self.error(f"unknown option {name}{nearest(name, names)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is no choice, and name the nearest choice."""
        choices = action.choices
        if choices is None or value in choices:
            return
        names = [str(choice) for choice in choices]
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - it has no other name
            self.error(not_a_command(str(value), names))
        raise argparse.ArgumentError(
            action, f"{value!r} is not a choice{nearest(str(value), names)}"
        )

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and how to get help, and end with exit code 2."""
        commands = [name for action in self._command_actions() for name in action.choices]
        if commands and message.startswith("the following arguments are required"):
            message = f"name a command: {', '.join(commands)}"
        self.print_usage(sys.stderr)
        self.exit(2, f"error: {shown(message)}\nfor help: {self.prog} --help\n")


def _quoting(word: str) -> str:
    """Return advice for a word that a shell may have made from a pattern; empty for others."""
    if not os.path.lexists(word):
        return ""
    return "; if your shell expanded a pattern, quote the pattern, as in 'docs/*.txt'"


def not_a_command(word: str, commands: Sequence[str]) -> str:
    """Return the error for a word that names no command."""
    return f"{word!r} is not a command{nearest(word, commands)}"


def nearest(word: str, names: Sequence[str]) -> str:
    """Return the question for the nearest name, or the list of names; empty without names."""
    return f"; {did_you_mean(word, names)}" if names else ""


def add_json(parser: Parser, more: str = "") -> None:
    """Add `--json`; `more` continues its help."""
    parser.add_argument("--json", action="store_true", help=f"as JSON, for scripts{more}")


def add_consent(parser: Parser, *, dry_run: str) -> None:
    """Add `--dry-run` with this help, and `--yes`, of a command that asks before it begins."""
    parser.add_argument("--dry-run", action="store_true", help=dry_run)
    parser.add_argument("--yes", action="store_true", help="do not ask; needed without a terminal")


class Subparsers:
    """The commands of a parser, or the actions of a command; each takes the `shared` options."""

    def __init__(self, parsers: "argparse._SubParsersAction[Parser]", *, shared: Parser) -> None:
        self._parsers = parsers
        self._shared = shared

    def add(self, name: str, text: str, more: str = "", *, description: str = "") -> Parser:
        """Return the parser of a new command.

        `text` is its line in the list. Its description is that line and `more`, if none is given.
        """
        described = description or f"{text[0].upper()}{text[1:]}. {more}".strip()
        return self._parsers.add_parser(
            name, parents=[self._shared], help=text, description=described
        )

    def add_group(self, name: str, text: str, description: str) -> "Subparsers":
        """Return the actions of a new command that does nothing by itself."""
        group = self._parsers.add_parser(name, help=text, description=description)
        actions = group.add_subparsers(required=True, metavar="ACTION")
        return Subparsers(actions, shared=self._shared)
