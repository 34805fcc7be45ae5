"""The limits of the provider and of tenants, as a person sets them."""

from pathlib import Path

from docllm.schemas.settings.account import account, quota_key, quotas
from docllm.schemas.settings.config import LLMConfig, Secret
from docllm.schemas.settings.quota import ChargeRule, QuotaLimits
from tests.support.settings import fault, load

SERVER = 'base_url = "http://h/v1"\n'


def test_a_route_has_the_limits_of_its_section(tmp_path: Path) -> None:
    """The default route's limits are in `[llm]`."""
    config = load(
        tmp_path,
        f'[llm]\n{SERVER}model = "mini"\nrpm = 300\n'
        '[routes.large]\ntpm = 4_000_000\nin_flight = 400\ncharge = "max_kept"\n',
    )

    assert account(config, "default").limits == QuotaLimits(rpm=300)
    assert account(config, "large").limits == QuotaLimits(
        tpm=4_000_000, in_flight=400, charge=ChargeRule.MAX_KEPT
    )
    assert account(config, "large").limits.given == {"tpm": 4_000_000, "in_flight": 400}


def test_routes_of_one_account_and_model_share_their_limits(tmp_path: Path) -> None:
    """The provider counts by account and model, and knows no route."""
    config = load(
        tmp_path,
        f'[llm]\n{SERVER}model = "mini"\n[routes.own]\nmodel = "mini"\nrpm = 60\n'
        '[routes.other]\nbase_url = "http://other/v1"\nmodel = "mini"\n'
        '[types.a]\nroute = "own"\n',
    )
    key = quota_key(account(config, "default"))

    assert quotas(config) == {key: QuotaLimits(rpm=60)}
    assert quota_key(account(config, "own")) == key
    assert quota_key(account(config, "other")) != key


def test_two_limits_of_one_account_are_refused(tmp_path: Path) -> None:
    """Nobody could tell which of them the provider keeps."""
    toml = f'[llm]\n{SERVER}model = "mini"\nrpm = 300\n[routes.mini]\nrpm = 60\n'
    assert "routes.mini and llm have the same address, key" in fault(tmp_path, toml)


def test_the_key_of_a_quota_shows_no_secret_and_tells_accounts_apart() -> None:
    """Azure's key is a header; a slash at the end of the address makes no difference."""
    plain = LLMConfig(base_url="http://h/v1", model="m", api_key=Secret("sk-1"))
    slash = LLMConfig(base_url="http://h/v1/", model="m", api_key=Secret("sk-1"))
    others = [
        LLMConfig(base_url="http://h/v1", model="m", api_key=Secret("sk-2")),
        LLMConfig(base_url="http://h/v1", model="n", api_key=Secret("sk-1")),
        LLMConfig(base_url="http://h/v1", model="m", headers={"api-key": Secret("sk-3")}),
        LLMConfig(base_url="http://h/v1", model="m", headers={"api-key": Secret("sk-4")}),
    ]

    assert quota_key(plain) == quota_key(slash)
    assert len({quota_key(llm) for llm in (plain, *others)}) == 5
    assert "sk-1" not in quota_key(plain)


def test_a_tenant_takes_what_it_does_not_set_from_the_defaults(tmp_path: Path) -> None:
    """A tenant without a section has the defaults too."""
    config = load(
        tmp_path,
        "[tenants.acme]\nweight = 2\n[tenants.zeta]\nin_flight = 5\n[tenant_defaults]\n"
        "in_flight = 50\noverflow = 100\n",
    )

    tenants = [config.tenant(name) for name in ("acme", "zeta", "else")]
    assert [(of.weight, of.in_flight) for of in tenants] == [(2.0, 50), (1.0, 5), (1.0, 50)]
    assert config.tenant_defaults.overflow == 100
