"""`topics` as a command: its defaults, and its messages about unchanged and missing topics."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from docllm.producer.bus.embedded.admin import EmbeddedTopicAdmin
from docllm.producer.cli import admin
from docllm.producer.cli.parser import parser
from docllm.producer.ports import TopicState
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.sources import load_config


def run(folder: Path, *arguments: str, **environ: str) -> int:
    options = parser().parse_args(("topics", *arguments))
    return int(
        asyncio.run(options.run(load_config(flags={}, environ=environ, cwd=folder), options))
    )


def test_a_request_for_fewer_partitions_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A request for fewer partitions is reported, because it changes nothing.

    Without a number nobody asked for fewer.
    """
    assert run(tmp_path, "apply", "--partitions", "8") == 0
    assert run(tmp_path, "apply", "--partitions", "8") == 0
    assert run(tmp_path, "apply") == 0
    assert capsys.readouterr().err == ""

    assert run(tmp_path, "apply", "--partitions", "6") == 0
    assert (
        "docllm.tasks keeps its 8 partitions: they can be raised, never lowered"
        in capsys.readouterr().err.splitlines()
    )


def test_embedded_topics_that_were_never_made_are_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Embedded topics that were never made are no difference; one that is gone is a failure.

    The next load or agent makes them, as it makes those of new tiers.
    """
    assert run(tmp_path, "check") == 0
    assert (
        "topic docllm.tasks is not there yet; the next load or agent creates it"
        in capsys.readouterr().out.splitlines()
    )
    assert run(tmp_path, "apply") == 0
    capsys.readouterr()

    assert run(tmp_path, "check", DOCLLM_RETRY_TIERS="2s,30s") == 0
    captured = capsys.readouterr()
    assert (
        captured.out
        == "topic docllm.retry.2s is not there yet; the next load or agent creates it\n"
    )
    assert captured.err == ""

    (tmp_path / "docllm-data" / "bus.sqlite").unlink()
    assert run(tmp_path, "check", DOCLLM_RETRY_TIERS="2s,30s") == 4
    assert "topic docllm.tasks is missing" in capsys.readouterr().out.splitlines()


def test_a_hidden_setting_is_unknown_and_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hidden setting is unknown and no difference.

    A broker that hides it hides it for good, so nothing could ever start. A person should still
    check it.
    """
    assert run(tmp_path, "apply") == 0
    describe = EmbeddedTopicAdmin.describe

    async def hidden(admin: EmbeddedTopicAdmin, topics: Sequence[str]) -> dict[str, TopicState]:
        descriptions = await describe(admin, topics)
        printed = {
            name: value
            for name, value in descriptions["docllm.dlq"].settings.items()
            if name != "retention.ms"
        }
        return descriptions | {"docllm.dlq": replace(descriptions["docllm.dlq"], settings=printed)}

    monkeypatch.setattr(EmbeddedTopicAdmin, "describe", hidden)
    capsys.readouterr()

    assert run(tmp_path, "check") == 0
    assert (
        capsys.readouterr().out
        == "topic docllm.dlq: retention.ms cannot be read from the broker; it must be -1\n"
    )

    options = parser().parse_args(["check"])
    asyncio.run(options.run(load_config(flags={}, environ={}, cwd=tmp_path), options))
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "topics:" in line)
    assert line.startswith("ok ")
    assert line.endswith(
        "are as they should be; unknown settings: 1, see: docllm topics check --group docllm"
    )


def test_embedded_topics_have_few_partitions(tmp_path: Path) -> None:
    """Embedded topics have few partitions, because every agent reads all in every pass."""
    options = parser().parse_args(["topics", "apply", "--partitions", "5000"])

    with pytest.raises(ConfigError, match="--partitions 5000: embedded topics have 1000 at most"):
        asyncio.run(admin.topics(Config(data_dir=tmp_path), options))
