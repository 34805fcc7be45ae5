"""What an agent tells its group before it claims a task."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from docllm.agent.wiring.group_rules import store_group_rules
from docllm.producer.app import Parts
from docllm.schemas.settings.sources import load_config
from docllm.schemas.task.hooks import OF_BATCHES
from tests.support.doubles import stand_in


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", []),
        ('[hooks]\non_batch_done = "https://example.com/"', [[OF_BATCHES]]),
        ('[types.pay]\nhandler = "pay:pay"\non_loss = "dead"', [{"pay"}]),
    ],
)
def test_only_what_the_settings_name_is_told(tmp_path: Path, text: str, told: list[Any]) -> None:
    """A batch that is done before the hook's first turn is told too; most settings say nothing."""
    (tmp_path / "docllm.toml").write_text(text)
    config = load_config(flags={}, environ={}, cwd=tmp_path)
    written: list[Any] = []

    async def write(_statement: Callable[..., object], group: str, names: object) -> None:
        assert group == "g"
        written.append(names)

    parts = SimpleNamespace(
        transactions=SimpleNamespace(write=write), topics=SimpleNamespace(group="g")
    )
    asyncio.run(store_group_rules(stand_in(Parts, parts), config))

    assert written == told
