"""How long a load takes at least, by the limits that are set."""

import orjson
import pytest

from docllm.producer.input.accounts import TaskAccounts
from docllm.producer.input.lines import ValidLine, read_line
from docllm.producer.input.time_needed import TimeNeeded
from docllm.schemas.settings.config import Config, LLMConfig, RouteConfig
from docllm.schemas.settings.quota import QuotaLimits


def config(**limits: int) -> Config:
    return Config(
        llm=LLMConfig(base_url="http://h/v1", model="mini", limits=QuotaLimits(**limits)),  # type: ignore[arg-type]
        routes={"large": RouteConfig(limits=QuotaLimits(rpm=1)), "free": RouteConfig()},
    )


def lines(count: int, **fields: object) -> list[ValidLine]:
    raw = orjson.dumps({"id": "a", "prompt": "x" * 1000} | fields)
    made = [read_line(number, raw) for number in range(count)]
    return [line for line in made if isinstance(line, ValidLine)]


def needed(settings: Config, *loads: list[ValidLine]) -> TimeNeeded:
    time = TimeNeeded(TaskAccounts(settings))
    for load in loads:
        for line in load:
            time.add(line)
    return time


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"rpm": 10}, "at least 0:10:00, because of rpm = 10 of route default"),
        ({"rpd": 50}, "at least 48:00:00, because of rpd = 50 of route default"),
        ({"rpm": 10, "tpm": 1000}, "at least 0:25:00, because of tpm = 1,000 of route default"),
        ({"otpm": 1}, ""),  # nobody knows how long the answers will be
        ({"in_flight": 1}, ""),
        ({"rpm": 1000}, ""),  # seconds
        ({}, ""),
    ],
)
def test_the_binding_limit_tells_the_time(limits: dict[str, int], text: str) -> None:
    """Of several limits it is the one that takes longest."""
    assert str(needed(config(**limits), lines(100))) == text


def test_each_account_is_counted_for_itself() -> None:
    """Accounts work at the same time, and a model without limits counts for none."""
    time = needed(config(rpm=10), lines(100), lines(20, model="large"), lines(500, model="free"))

    assert str(time) == "at least 0:20:00, because of rpm = 1 of route large"
    assert time.as_json() == {"least_s": 1200.0, "limited_by": {"route": "large", "limit": "rpm"}}
    assert needed(config()).as_json() == {"least_s": None, "limited_by": None}


def test_tasks_larger_than_a_minutes_tokens_are_named() -> None:
    """A provider refuses such a task whenever it is sent; `map-reduce` splits it."""
    loads = (
        lines(3),
        lines(1, id="long", prompt="x" * 2000),
        lines(1, id="whole", type="map-reduce"),
    )

    (warning,) = needed(config(tpm=900, itpm=200), *loads).too_large()

    assert warning.startswith(
        "4 tasks are probably larger than a minute's tokens, itpm = 200 of route"
    )
    assert "'long' (about 50" in warning
    assert list(needed(config(tpm=900), *loads).too_large()) == []
    assert list(needed(config(rpm=1, otpm=1), *loads).too_large()) == []
