"""A task line becomes the row that is stored."""

from typing import Any

import orjson
import pytest

from producer.loading.new_task import new_task
from schemas.settings.config import Config, TypeConfig
from schemas.task.line import parse

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
