"""The arguments of `docllm agent`: misplaced and misspelt words."""

import pytest

from docllm.agent.cli.parser import main, rehearsal_parser, resume_parser, run_parser


@pytest.mark.parametrize("command", ["resume", "rehearsal-llm"])
def test_the_error_for_a_misplaced_command_names_its_place(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error for a command behind an option says where the command belongs.

    The error used to call the command unknown, though `--help` names it.
    """
    with pytest.raises(SystemExit, match="2"):
        main(["--group", "g", command])

    assert (
        f"{command} must come before all options: docllm agent {command} --help"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("reap", "'reap' is not a command; did you mean reaper?"),
        ("start", "'start' is not a command; known are: run, reaper, resume, rehearsal-llm"),
        ("--gruop x", "unknown option --gruop; did you mean --group?"),
        ("--slot 5", "unknown option --slot; did you mean --slots?"),
        ("reaper --slot=5", "unknown option --slot; did you mean --slots?"),
        (
            "--zzz",
            "--rehearsal-options, --config, --wait, --log-level",
        ),  # not those of a parent process
        ("run now", "unexpected argument 'now'"),
        ("--processes many", "'many' is not a whole number"),
        ("--log-level info", "'info' is not a choice; known are: DEBUG, INFO, WARNING, ERROR"),
        ("resume a --gruop x", "unknown option --gruop; did you mean --group?"),
        ("rehearsal-llm --latenzy 1", "unknown option --latenzy; did you mean --latency?"),
        ("--fail-on-dead", "--fail-on-dead needs --until-done"),
    ],
)
def test_a_wrong_word_is_repeated_with_the_nearest_right_one(
    line: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt or shortened word is never guessed at; the error names the nearest one."""
    with pytest.raises(SystemExit, match="2"):
        main(line.split())

    assert error in capsys.readouterr().err


@pytest.mark.parametrize("parser", [run_parser, resume_parser, rehearsal_parser])
def test_each_command_has_a_function(parser: "object") -> None:
    """A function that is named by its import path exists."""
    assert callable(parser().get_default("run").function())  # type: ignore[operator]
