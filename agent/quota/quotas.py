"""The limits of an agent: of accounts, tenants, types and resources.

Admission asks here whether a call, or an attempt, may begin: it may once each of its limits has
room. Routes of one account share its limits.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from docllm.agent.quota.agent_quota import AgentQuota
from docllm.agent.quota.estimate import CallSize
from docllm.agent.quota.grants import Charge, DayCount, LimitKind, LimitName, WaitingCall
from docllm.agent.quota.limit import Limit, OwnLimit, Permit
from docllm.schemas.agent_report import Reason
from docllm.schemas.codes import Code
from docllm.schemas.settings.quota import QuotaLimits

IDLE_S = 60.0

# Returns the key of a limit and what it allows; None if it is not configured.
FindLimit = Callable[[LimitName], tuple[str, QuotaLimits] | None]


class Quotas:
    """All limits of one agent."""

    def __init__(self, find: FindLimit) -> None:
        self._find = find
        self.trouble = ""  # why the grant store cannot be used; empty if it can
        self._own: dict[str, OwnLimit] = {}
        self._by_key: dict[str, AgentQuota] = {}
        self._used_at_s: dict[str, float] = {}
        self._sequences = count(1)  # never repeats, though quotas are forgotten
        # By route and asker: all quotas that are asked, and whose they are.
        self._ready: dict[tuple[str, str], dict[AgentQuota, LimitName]] = {}

    # ---- for admission

    def room(self, name: LimitName, now_s: float) -> int | None:
        """Return how many calls or attempts under a limit may begin now; None without one."""
        limit = self._limit(name)
        return None if limit is None else limit.room(now_s)

    def set_waiting(
        self,
        route: str,
        waiting: Sequence[WaitingCall],
        now_s: float,
        asker: str = "ready tasks",
        later: Sequence[WaitingCall] = (),
    ) -> None:
        """Replace the calls of a route that wait for a grant, of one asker, the next first.

        Without this call, an agent gets no grants for a route. Calls in `later` ask all their
        limits but the account.
        """
        key = (route, asker)
        by_name: defaultdict[LimitName, list[WaitingCall]] = defaultdict(list)
        for call in (*waiting, *later):
            for name in call.limits:
                by_name[name].append(call)
        asked: dict[AgentQuota, LimitName] = {}
        account: LimitName = (LimitKind.ACCOUNT, route)
        by_name[account].extend(waiting)
        for name, calls in by_name.items():
            quota = self._shared(name, now_s)
            if quota is not None and calls:
                asked[quota] = name
                quota.set_waiting(key, calls)
        # A limit may have been removed or changed since: its quota is asked no more.
        for quota in self._ready.pop(key, {}).keys() - asked.keys():
            quota.set_waiting(key, ())
        if asked:
            self._ready[key] = asked

    def permit(
        self, names: Sequence[LimitName], charge: Charge, size: CallSize, now_s: float
    ) -> Permit | None:
        """Begin under all of these limits, an account first; None if one of them has no room."""
        limits = [limit for name in names if (limit := self._limit(name, now_s)) is not None]
        if any(limit.room(now_s) <= 0 for limit in limits):
            return None
        at_s = now_s
        for limit in limits:
            begun_s = limit.begin_call(charge, now_s)
            if begun_s is None:  # the account's grants are too small; the others count no tokens
                return None
            at_s = max(at_s, begun_s)
        account = self._shared(names[0]) if names and names[0][0] is LimitKind.ACCOUNT else None
        return Permit(charge, tuple(limits), account, at_s, size)

    def note_ended(self, permit: Permit, charged: Charge | None) -> None:
        """Note the end of a call, and what it was charged; None if no call was made."""
        for limit in permit.limits:
            limit.note_ended(permit.charge, charged)

    def reasons(self, now_s: float) -> list[Reason]:
        """Return for which limits tasks wait, for the agent's report.

        While the provider refuses calls, no limit is named.
        """
        found: dict[LimitName, Reason] = {}
        for asked in self._ready.values():
            for quota, whose in asked.items():
                paused_s = quota.paused_s(now_s)
                if quota.binding or paused_s:
                    kind, name = whose
                    found[whose] = Reason(
                        Code.ROUTE_LIMITED,
                        name,
                        kind="" if kind is LimitKind.ACCOUNT else kind,
                        text=quota.binding,
                        seconds=paused_s,
                        count=quota.limits.given.get(quota.binding) or 0,
                        agents=quota.agents,
                        trouble=self.trouble,
                    )
        return list(found.values())

    def note_used(self, route: str, today: DayCount) -> None:
        """Note how many calls the group's own records show for the account's day."""
        quota = self._shared((LimitKind.ACCOUNT, route))
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

    def _limit(self, name: LimitName, now_s: float | None = None) -> Limit | None:
        if name[0] is not LimitKind.SLOTS:
            return self._shared(name, now_s)
        found = self._find(name)
        if found is None:
            return None
        key, limits = found
        own = self._own.setdefault(key, OwnLimit(limits))
        own.limits = limits
        return own

    def _shared(self, name: LimitName, now_s: float | None = None) -> AgentQuota | None:
        found = self._find(name)
        if found is None:
            return None
        key, limits = found
        quota = self._by_key.get(key)
        if quota is None:
            quota = AgentQuota(key=key, limits=limits, sequences=self._sequences)
            self._by_key[key] = quota
        quota.limits = limits
        if now_s is not None:
            self._used_at_s[key] = now_s
        return quota
