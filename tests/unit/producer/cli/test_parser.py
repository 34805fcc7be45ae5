"""The arguments of `docllm`: misspelt words, and the functions of its commands."""

from argparse import ArgumentParser
from collections.abc import Iterator

import pytest

from docllm.agent.cli.parser import resume_parser
from docllm.producer.__main__ import main
from docllm.producer.cli.parser import parser


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("stauts", "'stauts' is not a command; did you mean status?"),
        ("lod x.jsonl", "'lod' is not a command; did you mean load?"),
        ("--gruop g status", "unknown option --gruop"),
        ("status --gruop g", "unknown option --gruop; did you mean --group?"),
        ("status --jso", "unknown option --jso; did you mean --json?"),
        ("status -x", "unknown option -x"),
        ("dead lst", "'lst' is not a command; did you mean list?"),
        ("topics aply", "'aply' is not a choice; did you mean apply?"),
        ("export --format opnai", "'opnai' is not a choice; did you mean openai?"),
        ("dead", "name a command: list, show"),
        ("", "name a command: load, status, "),
        ("migrate now", "unexpected argument 'now'"),
        ("cancel --batch", "argument --batch: expected one argument"),
    ],
)
def test_a_wrong_word_is_repeated_with_the_nearest_right_one(
    line: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt or shortened word is never guessed at; the error names the nearest one."""
    with pytest.raises(SystemExit, match="2"):
        main(line.split())

    assert error in capsys.readouterr().err


def test_each_command_has_a_function() -> None:
    """A function that is named by its import path exists."""
    functions = [command.get_default("run") for command in leaves(parser())]

    assert len(functions) > 10
    assert all(callable(named.function()) for named in functions)


@pytest.mark.parametrize("option", ["--json", "--yes"])
def test_an_option_of_several_commands_says_the_same_in_each(option: str) -> None:
    """What `dead list` and `show` add to the help of `--json` comes after a comma."""
    commands = [*leaves(parser()), resume_parser()]
    actions = [command._option_string_actions.get(option) for command in commands]
    helps = [action.help or "" for action in actions if action is not None]

    assert len(helps) > 3
    assert len({",".join(text.split(",")[:2]) for text in helps}) == 1


def leaves(command: ArgumentParser) -> Iterator[ArgumentParser]:
    """Yield the commands that have no commands below them."""
    if command._subparsers is None:
        yield command
    else:
        for below in dict(command._subparsers._group_actions[0].choices or {}).values():
            yield from leaves(below)


@pytest.mark.parametrize(
    ("options", "converts"),
    [([], False), (["--convert"], True), (["--convert", "--no-convert"], False)],
)
def test_the_last_word_on_conversion_holds(options: list[str], *, converts: bool) -> None:
    assert parser().parse_args(["load", "--documents", "d", *options]).convert is converts
