"""The quotas that the settings name: of accounts, by route, and of tenants. Pure."""

import hashlib

from docllm.schemas.settings.account import account, quota_key, quotas
from docllm.schemas.settings.config import DEFAULT_ROUTE, Config
from docllm.schemas.settings.quota import NO_LIMITS, QuotaLimits

_DIGEST_BYTES = 8


class ConfiguredQuotas:
    """Finds the quota of a route or of a tenant: its key, and its limits.

    Routes of the same account and model share a key. A model without a configured route has no
    limits. A tenant's key belongs to one group.
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
        is_capped = config.tenant_defaults.in_flight is not None
        self._has_cap_for_all = is_capped
        self._capped = {
            name for name, tenant in config.tenants.items() if tenant.in_flight is not None
        }

    def __bool__(self) -> bool:
        """Return whether any limit is set."""
        return bool(self._of_route or self._capped or self._has_cap_for_all)

    def may_limit(self, route: str) -> bool:
        """Return whether a limit may hold for some calls on a route."""
        return route in self._of_route or self._has_cap_for_all or bool(self._capped)

    def has_limit(self, route: str, tenant: str) -> bool:
        """Return whether a limit holds for a tenant's calls on a route."""
        return route in self._of_route or tenant in self._capped or self._has_cap_for_all

    def of_route(self, route: str) -> tuple[str, QuotaLimits] | None:
        """Return the key and the limits of a route's account; None if it has no limit."""
        return self._of_route.get(route)

    def limits(self, route: str) -> QuotaLimits:
        """Return the limits of a route's account."""
        quota = self._of_route.get(route)
        return NO_LIMITS if quota is None else quota[1]

    @property
    def daily(self) -> dict[str, list[str]]:
        """The routes of each account with a limit of requests a day, by the first route."""
        routes: dict[str, list[str]] = {}
        for route, (key, limits) in self._of_route.items():
            if limits.rpd is not None:
                routes.setdefault(key, []).append(route)
        return {names[0]: names for names in routes.values()}

    def of_tenant(self, tenant: str) -> tuple[str, QuotaLimits] | None:
        """Return the key and the limits of a tenant; None if it has no limit."""
        cap = self._config.tenant(tenant).in_flight
        if cap is None:
            return None
        name = hashlib.blake2b(f"{self._group}\n{tenant}".encode(), digest_size=_DIGEST_BYTES)
        return f"tenant-{name.hexdigest()}", QuotaLimits(in_flight=cap)
