"""The options of `replay --from-topic`."""

import argparse
import asyncio

import pytest

from docllm.producer.cli import from_topic, replay
from docllm.producer.cli.parser import parser
from docllm.producer.screen.output import CommandAnswer
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.config import Config


def test_letters_are_loaded_by_their_disposition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead letters can be loaded by disposition, which is how quarantined records are selected.

    All other selections need a ledger, which is lost.
    """
    taken: list[list[str]] = []

    async def load(_: Config, options: argparse.Namespace, _answer: CommandAnswer) -> int:
        taken.append(options.disposition)
        return 0

    monkeypatch.setattr(from_topic, "load", load)
    line = ["replay", "--from-topic", "--disposition", "rejected"]
    asyncio.run(replay.replay(Config(), parser().parse_args(line)))
    assert taken == [["rejected"]]

    for other in (["--batch", "b"], ["--all"], ["--resume"]):
        with pytest.raises(ConfigError, match="takes no other options"):
            asyncio.run(replay.replay(Config(), parser().parse_args([*line, *other])))
