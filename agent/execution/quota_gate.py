"""Keeps calls within the limits of accounts and tenants: each call waits here for its permit.

`docllm.agent.quota` decides which calls may begin; this module estimates what they cost.
"""

from collections import Counter
from itertools import chain

from docllm.agent.handlers.calls.permits import FREE_PERMITS, CallEnd, CallPermit, CallPermits
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.judge import effect_of
from docllm.agent.judge.classes import Effect
from docllm.agent.judge.snooze_delay import asked_for
from docllm.agent.ports import CallFailed, Clock, Reply
from docllm.agent.ports.outcome import Succeeded
from docllm.agent.quota.configured import ConfiguredQuotas
from docllm.agent.quota.estimate import CallSize, Estimates, actual_charge
from docllm.agent.quota.grants import Charge, WaitingCall
from docllm.agent.quota.provider_headers import share_left
from docllm.agent.quota.quotas import QuotaPermit, Quotas
from docllm.schemas.agent_report import Reason
from docllm.schemas.codes import Code
from docllm.schemas.settings.quota import NO_LIMITS
from docllm.schemas.task.failures import ErrorClass

# How often a waiting call checks whether its permit has come.
RETRY_EVERY_S = 0.1
_UNSENT = frozenset({ErrorClass.NETWORK, ErrorClass.AUTH})
_SUCCESS = range(200, 300)
_NOTHING = Charge(tokens_in=0, tokens_out=0)


class QuotaGate:
    """The limits of one agent's calls."""

    def __init__(self, *, quotas: Quotas, configured: ConfiguredQuotas, clock: Clock) -> None:
        self.quotas = quotas
        self.configured = configured
        self.clock = clock
        self.estimates = Estimates()
        self._waiting: dict[str, list[WaitingCall]] = {}  # by route: calls of running attempts
        self._ended: Counter[str] = Counter()  # by route, since the last `ended_lately`
        self._ended_before: Counter[str] = Counter()

    # ---- for admission

    def room(self, route: str, now_s: float) -> int | None:
        """Return how many attempts may begin now; None without a limit.

        Calls of running attempts that wait come first.
        """
        room = self.quotas.room(route, now_s)
        if room is None:
            return None
        quota = self.configured.of_route(route)
        routes = (name for name in self._waiting if self.configured.of_route(name) == quota)
        return max(0, room - sum(len(self._waiting[name]) for name in routes))

    def tenant_has_room(self, tenant: str, now_s: float) -> bool:
        """Return whether a tenant has room beside its running attempts' calls that wait."""
        room = self.quotas.tenant_room(tenant, now_s)
        waiting = chain.from_iterable(self._waiting.values())
        return room is None or room > sum(call.tenant == tenant for call in waiting)

    def first_call(self, delivery: Delivery, route: str) -> WaitingCall:
        """Return what the first call of a task will cost on a route, and whose it is."""
        return WaitingCall(charge=self._estimate(route, delivery.size), tenant=delivery.tenant)

    def _estimate(self, route: str, size: CallSize) -> Charge:
        limits = self.configured.limits(route)
        return _NOTHING if limits is NO_LIMITS else self.estimates.charge(route, size, limits)

    def reserve_first_call(self, delivery: Delivery, route: str) -> CallPermits | None:
        """Return the permits of an attempt, whose first call may begin; None if it may not."""
        if not self.configured.has_limit(route, delivery.tenant):
            return FREE_PERMITS
        call, now_s = self.first_call(delivery, route), self.clock.now_s()
        if not self.tenant_has_room(call.tenant, now_s):
            return None
        permit = self.quotas.permit(route, call.charge, call.tenant, now_s)
        if permit is None:
            return None
        return AttemptCallPermits(
            gate=self,
            route=route,
            tenant=delivery.tenant,
            size=delivery.size,
            first=permit,
        )

    def permits(self, route: str, tenant: str, size: CallSize) -> "AttemptCallPermits":
        """Return the permits of an attempt of which no call is reserved: each one waits."""
        return AttemptCallPermits(gate=self, route=route, tenant=tenant, size=size, first=None)

    def reasons(self, now_s: float) -> list[Reason]:
        """Return for which limits tasks wait, for the agent's report."""
        return [
            Reason(
                Code.ROUTE_LIMITED,
                wait.route,
                text=wait.name,
                seconds=wait.paused_s,
                count=wait.limit or 0,
                agents=wait.agents,
                trouble=wait.trouble,
            )
            for wait in self.quotas.quota_waits(now_s)
        ]

    # ---- for the waiting calls

    def waiting(self, route: str) -> list[WaitingCall]:
        """Return the calls of running attempts that wait for their permit."""
        return list(self._waiting.get(route, ()))

    @property
    def waiting_routes(self) -> set[str]:
        """The routes on which calls of running attempts wait."""
        return set(self._waiting)

    def ended_lately(self) -> Counter[str]:
        """Return by route how many calls ended since the last but one call of `ended_lately`."""
        self._ended, self._ended_before, lately = (
            Counter(),
            self._ended,
            self._ended + self._ended_before,
        )
        return lately

    # ---- for the permits

    async def wait_for_permit(
        self, route: str, tenant: str, size: CallSize, wait_s: float
    ) -> QuotaPermit | None:
        """Return the permit of a running attempt's call; None if there is none within `wait_s`."""
        until_s = self.clock.now_s() + wait_s
        charge = self._estimate(route, size)
        call = WaitingCall(charge=charge, tenant=tenant)
        permit = self.quotas.permit(route, charge, tenant, self.clock.now_s())
        if permit is not None:
            return permit
        waiting = self._waiting.setdefault(route, [])
        waiting.append(call)
        try:
            while permit is None and self.clock.now_s() < until_s:
                await self.clock.sleep(RETRY_EVERY_S)
                permit = self.quotas.permit(route, charge, tenant, self.clock.now_s())
        finally:
            waiting.remove(call)
            if not waiting:
                self._waiting.pop(route, None)
        return permit

    async def wait_for_start(self, permit: QuotaPermit) -> None:
        """Wait until the call of a permit may be sent."""
        delay_s = permit.at_s - self.clock.now_s()
        if delay_s > 0:
            await self.clock.sleep(delay_s)

    def note_ended(
        self, route: str, size: CallSize, permit: QuotaPermit, end: CallEnd | None
    ) -> None:
        """Tell the quotas what a call was charged, and what its reply says of the limits."""
        if permit.account is None and permit.tenant is None:
            return
        if end is None:
            self.quotas.note_ended(permit, None)
            return
        self._ended[route] += 1
        charged = self._charged(route, size, permit, end)
        headers = end.reply.headers if isinstance(end.reply, Reply) else {}
        refused = _is_refused(end)
        self.quotas.note_ended(
            permit,
            charged,
            refused=refused,
            retry_after_s=(asked_for(headers, self.clock.utc_s()) or 0.0) if refused else 0.0,
            remaining=share_left(headers),
        )

    def _charged(
        self, route: str, size: CallSize, permit: QuotaPermit, end: CallEnd
    ) -> Charge | None:
        """Return what the provider charged for a call, or its estimate if that is unknown."""
        reply = end.reply
        if isinstance(reply, CallFailed):
            return None if reply.error_class in _UNSENT else permit.charge
        if reply is None or end.outcome is None:
            return permit.charge
        if reply.status not in _SUCCESS:
            return _NOTHING  # the request counts, its tokens do not
        spent = end.outcome.spent
        if not spent.tokens_in and not spent.tokens_out:
            return permit.charge
        self.estimates.learn(route, size, spent.tokens_in, spent.tokens_out)
        return actual_charge(size, self.configured.limits(route), spent.tokens_in, spent.tokens_out)


class AttemptCallPermits:
    """The permits of one attempt's calls.

    The first one may be reserved before the attempt begins.
    """

    def __init__(
        self,
        *,
        gate: QuotaGate,
        route: str,
        tenant: str,
        size: CallSize,
        first: QuotaPermit | None,
    ) -> None:
        self._gate = gate
        self._route = route
        self._tenant = tenant
        self._size = size
        self._first = first

    async def acquire(self, length: int, most_out: int | None, wait_s: float) -> CallPermit | None:
        """Wait until a call may be made; None if it may not within `wait_s`."""
        (permit, self._first), size = (self._first, None), self._size
        if permit is None:
            size = CallSize(task_type=size.task_type, input_bytes=length, most_out=most_out)
            permit = await self._gate.wait_for_permit(self._route, self._tenant, size, wait_s)
        if permit is None:
            return None
        acquired = _GatePermit(self._gate, route=self._route, size=size, permit=permit)
        try:
            await self._gate.wait_for_start(permit)
        except BaseException:
            acquired.release(None)
            raise
        return acquired

    def close(self) -> None:
        """Give back the first permit if no call was made."""
        first, self._first = self._first, None
        if first is not None:
            self._gate.note_ended(self._route, self._size, first, None)


class _GatePermit:
    """The permission to make one call, which holds the permit of the quotas until its end."""

    def __init__(self, gate: QuotaGate, *, route: str, size: CallSize, permit: QuotaPermit) -> None:
        self._gate = gate
        self._route = route
        self._size = size
        self._permit = permit

    def release(self, end: CallEnd | None) -> None:
        """Give the permit of the quotas back."""
        self._gate.note_ended(self._route, self._size, self._permit, end)


def _is_refused(end: CallEnd) -> bool:
    """Return whether the provider refused a call because of its limits."""
    outcome = end.outcome
    return (
        outcome is not None
        and not isinstance(outcome, Succeeded)
        and effect_of(outcome.failure.error_class) is Effect.REFUSAL
    )
