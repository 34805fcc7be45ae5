"""The digest of the settings shows which agents have other settings."""

from dataclasses import replace
from pathlib import Path

import pytest

from docllm.schemas.runtime.address import Address
from docllm.schemas.settings.changes import settings_digest
from docllm.schemas.settings.config import (
    AgentConfig,
    Config,
    KafkaConfig,
    LLMConfig,
    OtelConfig,
    Price,
    RouteConfig,
    Secret,
    Structured,
    TypeConfig,
)

CONFIG = Config(
    kafka=KafkaConfig("broker:9092", {"sasl.password": "pass", "group.protocol": "consumer"}),
    llm=LLMConfig("http://llm/v1", Secret("key"), "model", headers={"api-key": Secret("header")}),
    database_url=Secret("mysql://user:pass@host/db"),
    prices={"a": Price(1.0, 2.0), "b": Price(3.0, 4.0)},
    routes={"r": RouteConfig(model="m")},
    types={"t": TypeConfig(retry=("ValueError",))},
)


@pytest.mark.parametrize(
    "same",
    [
        CONFIG,
        replace(CONFIG, file=Path("/elsewhere/docllm.toml")),
        replace(CONFIG, prices=dict(reversed(CONFIG.prices.items()))),
        replace(CONFIG, llm=replace(CONFIG.llm, api_key=Secret("another"))),
        replace(CONFIG, llm=replace(CONFIG.llm, headers={"api-key": Secret("another")})),
        replace(CONFIG, database_url=Secret("mysql://user:new@host/db")),
        replace(CONFIG, otel=OtelConfig(endpoint="http://this-machine:4318")),
        replace(CONFIG, agent=AgentConfig(http=Address("127.0.0.1", 9464))),
        replace(
            CONFIG, kafka=replace(CONFIG.kafka, client=CONFIG.kafka.client | {"sasl.password": "x"})
        ),
    ],
)
def test_equal_settings_have_equal_digests(same: Config) -> None:
    """Neither the file, the order, the value of a secret nor an address of a machine counts."""
    assert settings_digest(same) == settings_digest(CONFIG)
    assert len(settings_digest(same)) == 16


@pytest.mark.parametrize(
    "other",
    [
        replace(CONFIG, agent=AgentConfig(slots=65)),
        replace(CONFIG, llm=replace(CONFIG.llm, api_key=None)),
        replace(CONFIG, llm=replace(CONFIG.llm, headers={"X-Key": Secret("header")})),
        replace(CONFIG, llm=replace(CONFIG.llm, structured=Structured.NONE)),
        replace(CONFIG, prices={"a": Price(1.0, 2.0)}),
        replace(CONFIG, types={"t": TypeConfig(retry=("KeyError",))}),
        replace(CONFIG, data_dir=Path("elsewhere")),
        replace(CONFIG, kafka=KafkaConfig("broker:9092", {"group.protocol": "consumer"})),
    ],
)
def test_other_settings_have_another_digest(other: Config) -> None:
    """Every setting counts, and of a secret whether it is set."""
    assert settings_digest(other) != settings_digest(CONFIG)
