"""Options may stand before and after a command's arguments; impossible values are refused."""

import asyncio
from pathlib import Path

import pytest

from producer.__main__ import _parser
from producer.cli import admin, replay
from schemas.errors import ConfigError
from schemas.settings.config import Config

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
        "dead list --since=",
        "dead show a --batch=",
        "guard open b --type=",
        "replay --batch b --fingerprint=",
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

    Such values used to end in a traceback, or in a command that did nothing and returned 0.
    """
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args(line.split())

    assert ended.value.code == 2
    assert "argument " in capsys.readouterr().err


@pytest.mark.parametrize("option", [("--rate", "5/s"), ("--cap", "3")])
@pytest.mark.parametrize(
    "mode", [("--resume",), ("--list",), ("--from-topic",), ("--from-topic", "letters")]
)
def test_a_rate_that_would_not_be_kept_is_refused(
    mode: tuple[str, ...], option: tuple[str, ...]
) -> None:
    """A rate that a replay would ignore is refused before anything is read.

    A resumed replay uses its stored rate, and dead letters are loaded without a rate limit.
    """
    options = _parser().parse_args(["replay", *mode, *option])

    with pytest.raises(
        ConfigError, match=rf"^{mode[0]} takes no other options, because .*; leave out {option[0]}$"
    ):
        asyncio.run(replay.replay(Config(), options))


def test_embedded_topics_have_few_partitions(tmp_path: Path) -> None:
    """Embedded topics have few partitions, because every agent looks at all in every turn."""
    options = _parser().parse_args(["topics", "apply", "--partitions", "5000"])

    with pytest.raises(ConfigError, match="--partitions 5000: embedded topics have 1000 at most"):
        asyncio.run(admin.topics(Config(data_dir=tmp_path), options))
