"""What `check` says of the limits that are set."""

from docllm.producer.checks.limits import description, has_limits
from docllm.schemas.settings.config import Config, LLMConfig, RouteConfig, Secret, TypeConfig
from docllm.schemas.settings.quota import ChargeRule, NamedLimit, QuotaLimits

CONFIG = Config(
    llm=LLMConfig(base_url="http://h/v1", model="mini", limits=QuotaLimits(rpm=5000)),
    routes={
        "large": RouteConfig(
            limits=QuotaLimits(tpm=4_000_000, in_flight=40, charge=ChargeRule.MAX_KEPT)
        ),
        "free": RouteConfig(),
    },
    redis_url=Secret("redis://h"),
)


def test_each_limit_is_named() -> None:
    """A route without limits is left out."""
    assert has_limits(CONFIG)
    assert description(CONFIG, redis_works=True) == (
        "large: tpm = 4,000,000, in_flight = 40, charge = max_kept; default: rpm = 5,000; "
        "all agents together keep them, by Redis"
    )


def test_without_redis_the_part_of_each_agent_is_told() -> None:
    """An agent's part without Redis is a smaller one, so a person may want Redis."""
    config = Config(llm=CONFIG.llm)

    assert description(config, redis_works=False).endswith(
        "without Redis each agent keeps to its part of the partitions"
    )
    assert not has_limits(Config())


def test_other_groups_are_named_where_no_redis_adds_their_calls() -> None:
    """Each group would use the whole of the account's limits."""
    config = Config(llm=CONFIG.llm)

    assert "; agents of one, two run too: if they use the same account, " in description(
        config, redis_works=False, other_groups=["one", "two"]
    )
    assert "one" not in description(CONFIG, redis_works=True, other_groups=["one"])


def test_a_redis_that_cannot_be_used_keeps_no_limit() -> None:
    """The line must not promise what the line about Redis warns of."""
    assert description(CONFIG, redis_works=False).endswith(
        "until Redis can be used each agent keeps to its part of the partitions"
    )


def test_limits_of_types_and_of_handlers_are_named() -> None:
    """Without Redis, each agent has its part of these too."""
    config = Config(
        types={"scan": TypeConfig(in_flight=4, rpm=60), "note": TypeConfig(slots=2)},
        limits={"crm": NamedLimit(rpm=30)},
    )

    assert has_limits(config)
    assert description(config, redis_works=False, other_groups=["other"]) == (
        "type scan: rpm = 60, in_flight = 4; limit crm: rpm = 30; "
        "without Redis each agent keeps to its part of the partitions"
    )
