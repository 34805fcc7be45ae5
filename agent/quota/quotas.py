"""The quotas of an agent.

Admission asks here whether a call may begin for a route and a tenant. Routes of one account share
its limits. A tenant's limit of concurrent calls is a quota over all routes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from agent.quota.ledger import Ask, Charge, DayCount
from agent.quota.member import QuotaMember
from schemas.settings.quota import QuotaLimits

IDLE_S = 60.0
_NO_CHARGE = Charge(tokens_in=0, tokens_out=0)

# Returns the digest of an account and its limits; None if no limit is configured.
QuotaOf = Callable[[str], tuple[str, QuotaLimits] | None]


@dataclass(frozen=True, slots=True)
class Reservation:
    """The part of its quotas that one call holds.

    Give it back with `Quotas.ended`.
    """

    charge: Charge
    account: QuotaMember | None
    tenant: QuotaMember | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaWait:
    """Tasks of a route wait for a limit, by its name in the settings.

    `limit` is None while the provider refuses calls, for `paused_s`.
    """

    route: str
    name: str
    limit: int | None
    agents: int
    paused_s: float


class Quotas:
    """The quotas of all routes and tenants of one agent."""

    def __init__(self, *, of_route: QuotaOf, of_tenant: QuotaOf) -> None:
        self._of_route = of_route
        self._of_tenant = of_tenant
        self._members: dict[str, QuotaMember] = {}
        self._used_s: dict[str, float] = {}
        self._sequences = count(1)  # never repeats, though members are forgotten
        # By route and user: the account, and the tenants with tasks that are ready.
        self._ready: dict[tuple[str, str], tuple[str | None, set[str]]] = {}

    # ---- for admission

    def room(self, route: str, now_s: float) -> int | None:
        """Return how many calls of a route may begin now; None without a limit."""
        member = self._member(self._of_route(route))
        return None if member is None else member.room(now_s)

    def wants(
        self,
        route: str,
        asks: Sequence[Ask],
        now_s: float,
        user: str = "ready tasks",
        later: Sequence[Ask] = (),
    ) -> None:
        """Replace one user's tasks of a route that are ready, the next first.

        Without this call, an agent gets no grants for a route. Tasks in `later` ask for a place of
        their tenant, but not yet for grants of the account.
        """
        key = (route, user)
        member = self._member(self._of_route(route), now_s)
        if member is not None:
            member.wants(key, asks)
        tenants: defaultdict[str, list[Ask]] = defaultdict(list)
        for ask in (*asks, *later):
            tenants[ask.tenant].append(ask)
        _, before = self._ready.pop(key, (None, set()))
        for tenant in before | tenants.keys():
            holder = self._member(self._of_tenant(tenant), now_s)
            if holder is not None:
                holder.wants(key, tenants.get(tenant, ()))
        if tenants:
            account = member.key if member is not None and asks else None
            self._ready[key] = (account, set(tenants))

    def take(self, route: str, charge: Charge, tenant: str, now_s: float) -> Reservation | None:
        """Begin a call, if it may begin now."""
        account = self._member(self._of_route(route), now_s)
        holder = self._member(self._of_tenant(tenant), now_s)
        if holder is not None and holder.room(now_s) <= 0:
            return None
        if account is not None and not account.take(charge, now_s):
            return None
        if holder is not None:
            holder.take(_NO_CHARGE, now_s)
        return Reservation(charge, account, holder)

    def ended(
        self,
        reservation: Reservation,
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
        if reservation.account is not None:
            reservation.account.ended(
                reservation.charge,
                charged,
                refused=refused,
                retry_after_s=retry_after_s,
                remaining=remaining,
            )
        if reservation.tenant is not None:
            reservation.tenant.ended(_NO_CHARGE, _NO_CHARGE)

    def waits(self, now_s: float) -> list[QuotaWait]:
        """Return which routes have tasks that wait for a limit."""
        waits = {}
        for (route, _), (key, _) in self._ready.items():
            member = None if key is None else self._members.get(key)
            if member is None:
                continue
            paused_s = member.paused_s(now_s)
            if member.binding or paused_s:
                waits[route] = QuotaWait(
                    route=route,
                    name=member.binding,
                    limit=member.limits.given.get(member.binding),
                    agents=member.agents,
                    paused_s=paused_s,
                )
        return list(waits.values())

    def note_used(self, route: str, today: DayCount) -> None:
        """Note how many calls the group's own records show for the account's day."""
        member = self._member(self._of_route(route))
        if member is not None:
            member.used_today = today

    # ---- for the exchange with the ledger

    def members(self, now_s: float) -> Iterator[QuotaMember]:
        """Yield the members that have something to ask or to tell; forget those long unused."""
        for key, member in list(self._members.items()):
            if member.worth_telling(now_s):
                self._used_s[key] = now_s
                yield member
            elif now_s - self._used_s.get(key, now_s) > IDLE_S:
                del self._members[key], self._used_s[key]

    @property
    def scales(self) -> dict[str, float]:
        """Return the scale of each account, as it is known last."""
        return {key: member.scale for key, member in self._members.items()}

    def _member(
        self, quota: tuple[str, QuotaLimits] | None, now_s: float | None = None
    ) -> QuotaMember | None:
        if quota is None:
            return None
        key, limits = quota
        member = self._members.get(key)
        if member is None:
            member = QuotaMember(key=key, limits=limits, sequences=self._sequences)
            self._members[key] = member
        member.limits = limits
        if now_s is not None:
            self._used_s[key] = now_s
        return member
