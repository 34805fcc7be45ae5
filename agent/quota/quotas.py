"""The quotas of an agent.

Admission asks here whether a call may begin for a route and a tenant. Routes of one account share
its limits. A tenant's limit of concurrent calls is a quota over all routes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from docllm.agent.quota.agent_quota import AgentQuota, CallStart
from docllm.agent.quota.grants import Charge, DayCount, WaitingCall
from docllm.schemas.settings.quota import QuotaLimits

IDLE_S = 60.0
_NO_CHARGE = Charge(tokens_in=0, tokens_out=0)

# Returns the digest of an account and its limits; None if no limit is configured.
QuotaOf = Callable[[str], tuple[str, QuotaLimits] | None]


@dataclass(frozen=True, slots=True)
class QuotaPermit:
    """The permission of the quotas of an account and a tenant for one call.

    Give it back with `Quotas.note_ended`. `charge` is what the call will cost by estimate. It may
    be sent once the agent's clock shows `at_s`.
    """

    charge: Charge
    account: AgentQuota | None
    tenant: AgentQuota | None
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaWait:
    """Tasks of a route wait for a limit, by its name in the settings.

    `limit` is None while the provider refuses calls, for `paused_s`. `agents` is 0 if this agent
    keeps to its share, and `trouble` says why Redis cannot be used.
    """

    route: str
    name: str
    limit: int | None
    agents: int
    paused_s: float
    trouble: str = ""


class Quotas:
    """The quotas of all routes and tenants of one agent."""

    def __init__(self, *, of_route: QuotaOf, of_tenant: QuotaOf) -> None:
        self._of_route = of_route
        self._of_tenant = of_tenant
        self.trouble = ""  # why the grant store cannot be used; empty if it can
        self._by_key: dict[str, AgentQuota] = {}
        self._used_at_s: dict[str, float] = {}
        self._sequences = count(1)  # never repeats, though quotas are forgotten
        # By route and asker: the account with tasks that are ready, and all quotas that are asked.
        self._ready: dict[tuple[str, str], tuple[AgentQuota | None, set[AgentQuota]]] = {}

    # ---- for admission

    def room(self, route: str, now_s: float) -> int | None:
        """Return how many calls of a route may begin now; None without a limit."""
        quota = self._quota(self._of_route(route))
        return None if quota is None else quota.room(now_s)

    def tenant_room(self, tenant: str, now_s: float) -> int | None:
        """Return how many calls of a tenant may begin now; None without a limit."""
        quota = self._quota(self._of_tenant(tenant))
        return None if quota is None else quota.room(now_s)

    def set_waiting(
        self,
        route: str,
        waiting: Sequence[WaitingCall],
        now_s: float,
        asker: str = "ready tasks",
        later: Sequence[WaitingCall] = (),
    ) -> None:
        """Replace the calls of a route that wait for a grant, of one asker, the next first.

        Without this call, an agent gets no grants for a route. Calls in `later` ask for a seat of
        their tenant, but not yet for grants of the account.
        """
        key = (route, asker)
        tenants: defaultdict[str, list[WaitingCall]] = defaultdict(list)
        for call in (*waiting, *later):
            tenants[call.tenant].append(call)
        asked: dict[AgentQuota, Sequence[WaitingCall]] = {}
        for tenant, calls in tenants.items():
            tenant_quota = self._quota(self._of_tenant(tenant), now_s)
            if tenant_quota is not None:
                asked[tenant_quota] = calls
        account = self._quota(self._of_route(route), now_s)
        if account is not None and waiting:
            asked[account] = waiting
        # A limit may have been removed or changed since: its quota is asked no more.
        _, before = self._ready.pop(key, (None, set()))
        for quota in before | asked.keys():
            quota.set_waiting(key, asked.get(quota, ()))
        if asked:
            self._ready[key] = (account if waiting else None, set(asked))

    def permit(self, route: str, charge: Charge, tenant: str, now_s: float) -> QuotaPermit | None:
        """Count a call as begun, if it may begin now; None if it may not."""
        account = self._quota(self._of_route(route), now_s)
        tenant_quota = self._quota(self._of_tenant(tenant), now_s)
        if tenant_quota is not None and tenant_quota.room(now_s) <= 0:
            return None
        start = CallStart(now_s) if account is None else account.begin_call(charge, now_s)
        if start is None:
            return None
        if tenant_quota is not None:
            tenant_quota.begin_call(_NO_CHARGE, now_s)
        return QuotaPermit(charge, account, tenant_quota, start.at_s)

    def note_ended(
        self,
        permit: QuotaPermit,
        charged: Charge | None,
        *,
        refused: bool = False,
        retry_after_s: float = 0.0,
        remaining: float | None = None,
    ) -> None:
        """Note the end of a call, and what it was charged; None if no call was made.

        `refused`: the provider refused the call because of a limit. `remaining` is the lowest share
        of a limit that the answer said is left.
        """
        if permit.account is not None:
            permit.account.note_ended(
                permit.charge,
                charged,
                refused=refused,
                retry_after_s=retry_after_s,
                remaining=remaining,
            )
        if permit.tenant is not None:
            permit.tenant.note_ended(_NO_CHARGE, _NO_CHARGE)

    def quota_waits(self, now_s: float) -> list[QuotaWait]:
        """Return which routes have tasks that wait for a limit."""
        by_route = {}
        for (route, _), (account, _) in self._ready.items():
            if account is None:
                continue
            paused_s = account.paused_s(now_s)
            if account.binding or paused_s:
                by_route[route] = QuotaWait(
                    route=route,
                    name=account.binding,
                    limit=account.limits.given.get(account.binding),
                    agents=account.agents,
                    paused_s=paused_s,
                    trouble=self.trouble,
                )
        return list(by_route.values())

    def note_used(self, route: str, today: DayCount) -> None:
        """Note how many calls the group's own records show for the account's day."""
        quota = self._quota(self._of_route(route))
        if quota is not None:
            quota.note_used(today)

    # ---- for the exchange with the grant store

    def forgets(self, now_s: float) -> bool:
        """Return whether the store forgets one of the quotas again and again."""
        return any(quota.forgets(now_s) for quota in self._by_key.values())

    def with_news(self, now_s: float) -> Iterator[AgentQuota]:
        """Yield the quotas that have something to ask for or to report; forget unused ones."""
        for key, quota in list(self._by_key.items()):
            if quota.has_news(now_s):
                self._used_at_s[key] = now_s
                yield quota
            elif now_s - self._used_at_s.get(key, now_s) > IDLE_S:
                del self._by_key[key], self._used_at_s[key]

    @property
    def accepted_shares(self) -> dict[str, float]:
        """The accepted share of each account, as it is known last."""
        return {key: quota.accepted_share for key, quota in self._by_key.items()}

    def _quota(
        self, key_and_limits: tuple[str, QuotaLimits] | None, now_s: float | None = None
    ) -> AgentQuota | None:
        if key_and_limits is None:
            return None
        key, limits = key_and_limits
        quota = self._by_key.get(key)
        if quota is None:
            quota = AgentQuota(key=key, limits=limits, sequences=self._sequences)
            self._by_key[key] = quota
        quota.limits = limits
        if now_s is not None:
            self._used_at_s[key] = now_s
        return quota
