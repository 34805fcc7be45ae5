"""The quotas that the settings name."""

import pytest

from docllm.agent.quota.configured import ConfiguredQuotas
from docllm.schemas.settings.config import Config, LLMConfig, RouteConfig
from docllm.schemas.settings.quota import NO_LIMITS, QuotaLimits, TenantConfig, TenantDefaults

CONFIG = Config(
    llm=LLMConfig(base_url="http://h/v1", model="mini", limits=QuotaLimits(rpm=60)),
    routes={
        "again": RouteConfig(model="mini"),
        "large": RouteConfig(limits=QuotaLimits(tpm=1000)),
        "free": RouteConfig(),
    },
    tenants={"acme": TenantConfig(in_flight=5)},
)


def test_routes_of_one_account_have_one_quota() -> None:
    """Another model of the account has its own, and a model that nobody configured has none."""
    quotas = ConfiguredQuotas(config=CONFIG, group="g")

    assert quotas.of_route("default") == quotas.of_route("again")
    assert quotas.limits("again") == QuotaLimits(rpm=60)
    assert quotas.limits("large") == QuotaLimits(tpm=1000)
    assert quotas.of_route("large") != quotas.of_route("default")
    assert quotas.of_route("free") is quotas.of_route("some/model") is None
    assert quotas.limits("free") == NO_LIMITS


def test_a_tenant_has_a_quota_in_each_group() -> None:
    """The tenant's name is not shown to other users of Redis."""
    here, there = (ConfiguredQuotas(config=CONFIG, group=group) for group in ("g", "h"))

    found = here.of_tenant("acme")
    assert found is not None
    assert found[1] == QuotaLimits(in_flight=5)
    assert "acme" not in found[0]
    assert found != there.of_tenant("acme")
    assert here.of_tenant("other") is None


@pytest.mark.parametrize(
    ("config", "is_set"),
    [
        (Config(), False),
        (CONFIG, True),
        (Config(tenants={"a": TenantConfig(weight=2.0)}), False),
        (Config(tenants={"a": TenantConfig(in_flight=2)}), True),
        (Config(tenant_defaults=TenantDefaults(in_flight=2)), True),
    ],
)
def test_no_duty_is_needed_where_no_limit_is_set(config: Config, is_set: bool) -> None:  # noqa: FBT001
    """A limit of an account or of a tenant is one."""
    assert bool(ConfiguredQuotas(config=config, group="g")) is is_set


def test_routes_with_a_limit_of_requests_a_day_are_told_by_account() -> None:
    """The calls of an account's routes are counted together."""
    config = Config(
        llm=LLMConfig(base_url="http://h/v1", model="mini", limits=QuotaLimits(rpd=1000)),
        routes={
            "again": RouteConfig(model="mini"),
            "large": RouteConfig(limits=QuotaLimits(rpm=9)),
        },
    )

    assert ConfiguredQuotas(config=config, group="g").daily == {"default": ["default", "again"]}
