"""The check that says which limits are set, and who keeps them. Pure."""

from collections.abc import Sequence

from docllm.schemas.settings.account import account, configured_routes, use_limits
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.quota import QuotaLimits

_NAMED = 10


def has_limits(config: Config) -> bool:
    """Return whether a limit is set that agents keep together."""
    return bool(_of_accounts(config) or _of_uses(config))


def description(config: Config, *, redis_works: bool, other_groups: Sequence[str] = ()) -> str:
    """Return the limits of each route, type and name, and how agents share them.

    `redis_works`: the Redis of the settings answers, and refuses nothing. `other_groups` have
    agents that run, perhaps with the same account.
    """
    of_accounts = _of_accounts(config)
    named = [f"{name}: {_limits(limits)}" for name, limits in of_accounts + _of_uses(config)]
    rest = f"; {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    shared = _shared(config, redis_works=redis_works)
    if other_groups and of_accounts and not redis_works:
        shared += (
            f"; agents of {', '.join(other_groups[:_NAMED])} run too: if they use the same "
            "account, set a part of its limits for each group"
        )
    return f"{'; '.join(named[:_NAMED])}{rest}; {shared}"


def _of_accounts(config: Config) -> list[tuple[str, QuotaLimits]]:
    routes = [(name, account(config, name)) for name in configured_routes(config)]
    return [(name, llm.limits) for name, llm in routes if llm.limits.given]


def _of_uses(config: Config) -> list[tuple[str, QuotaLimits]]:
    """Return the limits of types over the group, and those that handlers name."""
    sections = [
        *((f"type {name}", use_limits(of)) for name, of in config.types.items()),
        *((f"limit {name}", use_limits(of)) for name, of in config.limits.items()),
    ]
    return [(name, limits) for name, limits in sections if limits.given]


def _shared(config: Config, *, redis_works: bool) -> str:
    if redis_works:
        return "all agents together keep them, by Redis"
    without = "until Redis can be used" if config.redis_url is not None else "without Redis"
    return f"{without} each agent keeps to its part of the partitions"


def _limits(limits: QuotaLimits) -> str:
    given = ", ".join(f"{name} = {limit:,}" for name, limit in limits.given.items())
    has_tokens = {"tpm", "itpm", "otpm"} & limits.given.keys()
    return f"{given}, charge = {limits.charge}" if has_tokens else given
