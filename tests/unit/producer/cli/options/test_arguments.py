"""Types of command-line arguments, before and after a command; impossible values are refused."""

import argparse

import pytest

from docllm.producer.cli.options import arguments
from docllm.producer.cli.parser import parser


@pytest.mark.parametrize(("text", "rate"), [("50/s", 50.0), ("50", 50.0), ("0.5/s", 0.5)])
def test_a_rate_is_read(text: str, rate: float) -> None:
    """A rate is a number, with or without its unit."""
    assert arguments.per_second(text) == rate


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, "write for example 50/s") for text in ("", "0", "-1/s", "fast", "1/m", "inf")),
        ("nan", "write for example 50/s"),
        *((text, "less than one an hour") for text in ("1e-13/s", "0.0001", "1e-320/s")),
    ],
)
def test_an_invalid_rate_is_refused(text: str, words: str) -> None:
    """The error for an invalid rate shows a valid one.

    Stored with a replay, a rate of less than one an hour would stop each later replay of the group,
    which resumes this one first.
    """
    with pytest.raises(argparse.ArgumentTypeError, match=words):
        arguments.per_second(text)


NOT_UTF8 = b"\xff".decode(errors="surrogateescape")  # as Python reads such an argument


@pytest.mark.parametrize(
    "line",
    [
        f"cancel --id {NOT_UTF8}",
        f"cancel --batch {NOT_UTF8}",
        f"status --batch {NOT_UTF8}",
        f"status --group {NOT_UTF8}",
        "status --group a/b",
        f"export --batch {NOT_UTF8}",
        f"guard open {NOT_UTF8}",
        f"guard open b --type {NOT_UTF8}",
        f"guard open b --route {NOT_UTF8}",
        f"guard list {NOT_UTF8}",
        f"load --documents d --prompt {NOT_UTF8}",
        f"load --documents d --model {NOT_UTF8}",
        "cancel --batch=",
        "cancel --id a --batch=",
        "status --batch=",
        "export --batch=",
        f"dead list --batch {NOT_UTF8}",
        *(
            f"dead list --disposition permanent --{name}="
            for name in ("fingerprint", "batch", "type", "tenant", "since", "until", "id")
        ),
        "show a --batch=",
        "guard open b --type=",
        "replay --from-topic=",
        "load - --limit 99999999999999999999999",
        "load - --limit 0",
        "replay --all --cap 99999999999999999999 --dry-run",
        f"replay --from-topic {NOT_UTF8}",
        "dead list --limit 1e3",
        "topics apply --partitions 99999999",
        "topics apply --replication-factor 99999999999",
    ],
)
def test_a_value_that_nothing_can_be_made_of_is_refused(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An impossible value is a usage error with code 2 that names the argument.

    An empty text does not widen a selection: ignored, an unset variable would select everything.
    Such values used to end in a traceback, or in a command that did nothing and returned 0.
    """
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(line.split())

    assert ended.value.code == 2
    assert "argument " in capsys.readouterr().err
