"""The limits that the settings name: of accounts, tenants, types, and resources. Pure."""

import hashlib
from collections.abc import Collection

from docllm.agent.quota.grants import LimitKind, LimitName
from docllm.schemas.settings.account import account, quota_key, quotas, use_limits
from docllm.schemas.settings.config import DEFAULT_ROUTE, Config
from docllm.schemas.settings.quota import NO_LIMITS, QuotaLimits

_DIGEST_BYTES = 8


class ConfiguredQuotas:
    """Finds a limit by its name: its key, and what it allows.

    Routes of the same account and model share a key. A model without a configured route has no
    limits. The keys of tenants, types and resources belong to one group.
    """

    def __init__(self, *, config: Config, group: str) -> None:
        self._group = group
        self.apply(config)

    def apply(self, config: Config) -> None:
        """Take over changed settings."""
        self._config = config
        limits = quotas(config)
        keys = {
            route: quota_key(account(config, route)) for route in (DEFAULT_ROUTE, *config.routes)
        }
        self._of_route = {route: (key, limits[key]) for route, key in keys.items() if key in limits}
        tenants = {
            name: QuotaLimits(in_flight=tenant.in_flight) for name, tenant in config.tenants.items()
        }
        slots = {name: QuotaLimits(in_flight=of.slots) for name, of in config.types.items()}
        named = {
            LimitKind.TENANT: tenants,
            LimitKind.TYPE: {name: use_limits(of) for name, of in config.types.items()},
            LimitKind.SLOTS: slots,
            LimitKind.NAMED: {name: use_limits(of) for name, of in config.limits.items()},
        }
        self._by_name = {
            (LimitKind.ACCOUNT, route): quota for route, quota in self._of_route.items()
        } | {
            (kind, name): (self._key(kind, name), allowed)
            for kind, by_name in named.items()
            for name, allowed in by_name.items()
            if allowed.given
        }
        self._has_cap_for_all = config.tenant_defaults.in_flight is not None
        self._capped = {name for kind, name in self._by_name if kind is LimitKind.TENANT}
        self._kinds = {kind for kind, _ in self._by_name} - {LimitKind.SLOTS}

    def __bool__(self) -> bool:
        """Return whether a limit is set that agents share."""
        return bool(self._kinds) or self._has_cap_for_all

    def may_limit(self, route: str) -> bool:
        """Return whether a shared limit may hold for some tasks on a route."""
        is_of_tasks = not self._kinds.isdisjoint({LimitKind.TENANT, LimitKind.TYPE})
        return route in self._of_route or is_of_tasks or self._has_cap_for_all

    def has_limit(self, route: str, tenant: str) -> bool:
        """Return whether a limit holds for a tenant's calls on a route."""
        return route in self._of_route or tenant in self._capped or self._has_cap_for_all

    def find(self, name: LimitName) -> tuple[str, QuotaLimits] | None:
        """Return the key of a limit, and what it allows; None if there is no such limit."""
        found = self._by_name.get(name)
        kind, tenant = name
        if found is None and kind is LimitKind.TENANT and self._has_cap_for_all:
            limits = QuotaLimits(in_flight=self._config.tenant(tenant).in_flight)
            return (self._key(kind, tenant), limits) if limits.given else None
        return found

    def limits(self, route: str) -> QuotaLimits:
        """Return the limits of a route's account."""
        quota = self._of_route.get(route)
        return NO_LIMITS if quota is None else quota[1]

    @property
    def named(self) -> Collection[str]:
        """The limits that handlers may name."""
        return self._config.limits

    @property
    def daily(self) -> dict[str, list[str]]:
        """The routes of each account with a limit of requests a day, by the first route."""
        routes: dict[str, list[str]] = {}
        for route, (key, limits) in self._of_route.items():
            if limits.rpd is not None:
                routes.setdefault(key, []).append(route)
        return {names[0]: names for names in routes.values()}

    def _key(self, kind: LimitKind, name: str) -> str:
        digest = hashlib.blake2b(f"{self._group}\n{name}".encode(), digest_size=_DIGEST_BYTES)
        return f"{kind}-{digest.hexdigest()}"
