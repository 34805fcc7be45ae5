"""A task line becomes the row that is stored."""

from typing import Any

import orjson
import pytest

from docllm.producer.ledger.batch_options import TaskDefaults
from docllm.producer.loading.task_row import new_task
from docllm.schemas.settings.config import Config, TypeConfig
from docllm.schemas.task.line.parsing import parse
from docllm.schemas.task.record.lanes import Lane

CONFIG = Config(
    max_attempts=5, types={"invoice": TypeConfig(max_attempts=2), "letter": TypeConfig(delay_s=60)}
)


@pytest.mark.parametrize(
    ("line", "max_attempts"),
    [
        ({}, 5),
        ({"type": "letter"}, 5),
        ({"type": "unheard-of"}, 5),
        ({"type": "invoice"}, 2),
        ({"type": "invoice", "max_attempts": 9}, 9),
        ({"max_attempts": 1}, 1),
    ],
)
def test_the_budget_of_a_task(line: dict[str, Any], max_attempts: int) -> None:
    """A task stores its line's number of attempts, else its type's, else the configured one."""
    value = orjson.dumps({"id": "a", "prompt": "p"} | line)

    assert (
        new_task(parse(value), value, CONFIG.max_attempts_of, raw_key=b"a").max_attempts
        == max_attempts
    )


CHAT: dict[str, Any] = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions"}
CHAT |= {"body": {"messages": [{"role": "user", "content": "hi"}]}}
OURS = {"id": "a", "prompt": "p"}


@pytest.mark.parametrize(
    ("line", "defaults", "expected"),
    [
        (CHAT, TaskDefaults(), ("default", Lane.NORMAL)),
        (CHAT, TaskDefaults("acme", 9), ("acme", Lane.URGENT)),
        (OURS, TaskDefaults("acme", 0), ("acme", Lane.BULK)),
        (OURS, TaskDefaults("acme"), ("acme", Lane.NORMAL)),
        (OURS | {"priority": 8}, TaskDefaults("acme"), ("acme", Lane.URGENT)),
        (OURS | {"priority": 5, "tenant": "default"}, TaskDefaults("acme", 9), ("default", 0)),
    ],
)
def test_a_line_wins_over_the_options_of_its_load(
    line: dict[str, Any], defaults: TaskDefaults, expected: tuple[str, Lane]
) -> None:
    """A load's tenant and priority are those of the lines that name none."""
    value = orjson.dumps(line)

    new = new_task(parse(value), value, lambda _: 5, raw_key=b"a", defaults=defaults)

    assert (new.tenant, new.lane) == expected
