"""What differs between two configurations; a digest shows which agents have other settings."""

from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

import pytest

from docllm.schemas.runtime.address import Address
from docllm.schemas.settings.changes import (
    changed_settings,
    fixed_changes,
    longest_timeout_s,
    settings_digest,
)
from docllm.schemas.settings.config import (
    AgentConfig,
    Config,
    KafkaConfig,
    LLMConfig,
    OtelConfig,
    Price,
    RetentionConfig,
    RouteConfig,
    Secret,
    Structured,
    TypeConfig,
)
from docllm.schemas.settings.kinds import BatchHook
from docllm.schemas.settings.quota import QuotaLimits, TenantConfig, TenantDefaults

CONFIG = Config(
    llm=LLMConfig(base_url="http://a", api_key=Secret("one"), timeout_s=60.0),
    routes={"fast": RouteConfig(timeout_s=90.0)},
    types={"scan": TypeConfig()},
    prices={"m": Price(1.0, 2.0)},
)


@pytest.mark.parametrize(
    ("new", "names"),
    [
        (replace(CONFIG, file=Path("other.toml")), []),
        (replace(CONFIG, llm=replace(CONFIG.llm, api_key=Secret("two"))), ["llm.api_key"]),
        (replace(CONFIG, llm=replace(CONFIG.llm, limits=QuotaLimits(rpm=5))), ["llm.rpm"]),
        (replace(CONFIG, routes={"fast": RouteConfig(model="m")}), None),
        (replace(CONFIG, routes=CONFIG.routes | {"new": RouteConfig()}), ["routes.new"]),
        (replace(CONFIG, types={"scan": TypeConfig(delay_s=1.0)}), ["types.scan.delay_s"]),
        (replace(CONFIG, types={}), ["types.scan"]),
        (replace(CONFIG, prices={"m": Price(1.0, 3.0)}), ["prices.m.output_per_mtok"]),
        (replace(CONFIG, tenants={"acme": TenantConfig()}), ["tenants.acme"]),
        (
            replace(CONFIG, tenant_defaults=TenantDefaults(overflow=1)),
            ["tenant_defaults.overflow"],
        ),
        (replace(CONFIG, guard_probe_s=1.0), ["guard.probe_s"]),
    ],
)
def test_what_an_agent_takes_over_is_named_by_its_setting(
    new: Config, names: list[str] | None
) -> None:
    """The names are those that a person writes; none of these needs a restart."""
    expected = ["routes.fast.model", "routes.fast.timeout_s"] if names is None else names

    assert changed_settings(CONFIG, new) == expected
    assert fixed_changes(CONFIG, new) == []


@pytest.mark.parametrize(
    ("new", "names"),
    [
        (replace(CONFIG, agent=AgentConfig(slots=5)), ["agent.slots"]),
        (replace(CONFIG, kafka=KafkaConfig("k:9092")), ["kafka.bootstrap"]),
        (replace(CONFIG, database_url=Secret("sqlite:///x")), ["database.url"]),
        (replace(CONFIG, data_dir=Path("elsewhere")), ["data_dir"]),
        (replace(CONFIG, document_roots=(Path("/"),)), ["documents.roots"]),
        (replace(CONFIG, document_allow=("s3://a/",)), ["documents.allow"]),
        (replace(CONFIG, document_private=(ip_network("10.0.0.0/8"),)), ["documents.private"]),
        (replace(CONFIG, document_kept_mb=0), ["documents.kept_mb"]),
        (replace(CONFIG, http_token=Secret("t")), ["http.token"]),
        (replace(CONFIG, retention=RetentionConfig(purge_after_s=5)), ["retention.purge"]),
        (replace(CONFIG, retry_tiers=("1s",), max_attempts=2), None),
        (replace(CONFIG, results_topic=True), ["results.topic"]),
        (replace(CONFIG, on_batch_done=BatchHook(function="f:g")), ["hooks.on_batch_done"]),
        (replace(CONFIG, routes={}), ["routes.fast"]),
    ],
)
def test_what_needs_a_restart_is_named(new: Config, names: list[str] | None) -> None:
    """An agent has made connections and topics of it, or holds tasks that need it."""
    expected = ["retry.tiers", "retry.max_attempts"] if names is None else names

    assert fixed_changes(CONFIG, new) == expected


def test_the_longest_call_is_that_of_any_route() -> None:
    """Claims last longer than it."""
    assert longest_timeout_s(CONFIG) == 90.0
    assert longest_timeout_s(replace(CONFIG, routes={})) == 60.0


OTHER = Config(
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
        OTHER,
        replace(OTHER, file=Path("/elsewhere/docllm.toml")),
        replace(OTHER, prices=dict(reversed(OTHER.prices.items()))),
        replace(OTHER, llm=replace(OTHER.llm, api_key=Secret("another"))),
        replace(OTHER, llm=replace(OTHER.llm, headers={"api-key": Secret("another")})),
        replace(OTHER, database_url=Secret("mysql://user:new@host/db")),
        replace(OTHER, otel=OtelConfig(endpoint="http://this-machine:4318")),
        replace(OTHER, agent=AgentConfig(http=Address("127.0.0.1", 9464))),
        replace(
            OTHER,
            kafka=replace(OTHER.kafka, client=OTHER.kafka.client | {"sasl.password": "x"}),
        ),
    ],
)
def test_equal_settings_have_equal_digests(same: Config) -> None:
    """Neither the file, the order, the value of a secret nor an address of a machine counts."""
    assert settings_digest(same) == settings_digest(OTHER)
    assert len(settings_digest(same)) == 16


@pytest.mark.parametrize(
    "other",
    [
        replace(OTHER, agent=AgentConfig(slots=65)),
        replace(OTHER, llm=replace(OTHER.llm, api_key=None)),
        replace(OTHER, llm=replace(OTHER.llm, headers={"X-Key": Secret("header")})),
        replace(OTHER, llm=replace(OTHER.llm, structured=Structured.NONE)),
        replace(OTHER, prices={"a": Price(1.0, 2.0)}),
        replace(OTHER, types={"t": TypeConfig(retry=("KeyError",))}),
        replace(OTHER, data_dir=Path("elsewhere")),
        replace(OTHER, kafka=KafkaConfig("broker:9092", {"group.protocol": "consumer"})),
    ],
)
def test_other_settings_have_another_digest(other: Config) -> None:
    """Every setting counts, and of a secret whether it is set."""
    assert settings_digest(other) != settings_digest(OTHER)
