"""The quotas that the settings name."""

import pytest

from docllm.agent.quota.configured import ConfiguredQuotas
from docllm.agent.quota.grants import LimitKind
from docllm.schemas.settings.config import Config, LLMConfig, RouteConfig, TypeConfig
from docllm.schemas.settings.quota import (
    NO_LIMITS,
    NamedLimit,
    QuotaLimits,
    TenantConfig,
    TenantDefaults,
)

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

    default, again, large, free, other = (
        quotas.find((LimitKind.ACCOUNT, route))
        for route in ("default", "again", "large", "free", "some/model")
    )
    assert default == again
    assert quotas.limits("again") == QuotaLimits(rpm=60)
    assert quotas.limits("large") == QuotaLimits(tpm=1000)
    assert large != default
    assert free is other is None
    assert quotas.limits("free") == NO_LIMITS


def test_a_tenant_has_a_quota_in_each_group() -> None:
    """The tenant's name is not shown to other users of Redis."""
    here, there = (ConfiguredQuotas(config=CONFIG, group=group) for group in ("g", "h"))

    found = here.find((LimitKind.TENANT, "acme"))
    assert found is not None
    assert found[1] == QuotaLimits(in_flight=5)
    assert "acme" not in found[0]
    assert found != there.find((LimitKind.TENANT, "acme"))
    assert here.find((LimitKind.TENANT, "other")) is None


def test_types_and_resources_have_limits_of_their_own() -> None:
    """The slots of one agent are none that agents share."""
    config = Config(
        types={"scan": TypeConfig(slots=1, in_flight=3, rpm=60), "note": TypeConfig(slots=2)},
        limits={"scan": NamedLimit(in_flight=4)},
    )
    quotas = ConfiguredQuotas(config=config, group="g")
    of_type, slots, named, of_note = (
        quotas.find(name)
        for name in (
            (LimitKind.TYPE, "scan"),
            (LimitKind.SLOTS, "scan"),
            (LimitKind.NAMED, "scan"),
            (LimitKind.TYPE, "note"),
        )
    )

    assert of_type is not None
    assert slots is not None
    assert named is not None
    assert of_type[1] == QuotaLimits(in_flight=3, rpm=60)
    assert slots[1] == QuotaLimits(in_flight=1)
    assert named[1] == QuotaLimits(in_flight=4)
    assert len({of_type[0], slots[0], named[0]}) == 3
    assert of_note is None


@pytest.mark.parametrize(
    ("config", "is_set"),
    [
        (Config(), False),
        (CONFIG, True),
        (Config(tenants={"a": TenantConfig(weight=2.0)}), False),
        (Config(tenants={"a": TenantConfig(in_flight=2)}), True),
        (Config(tenant_defaults=TenantDefaults(in_flight=2)), True),
        (Config(types={"scan": TypeConfig(slots=2)}), False),
        (Config(types={"scan": TypeConfig(rpm=2)}), True),
        (Config(limits={"crm": NamedLimit(in_flight=2)}), True),
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
