"""Keeps calls, attempts and uses of resources within their limits: they wait here for permits.

`docllm.agent.quota` decides which calls may begin; this module estimates what they cost.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import chain

from docllm.agent.handlers.calls.permits import FREE_PERMITS, CallEnd, CallPermits
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.judge import effect_of
from docllm.agent.judge.classes import Effect
from docllm.agent.judge.snooze_delay import asked_for
from docllm.agent.ports import CallFailed, Clock, Reply
from docllm.agent.ports.outcome import Succeeded
from docllm.agent.quota.configured import ConfiguredQuotas
from docllm.agent.quota.estimate import CallSize, Estimates, actual_charge
from docllm.agent.quota.grants import Charge, LimitKind, LimitName, WaitingCall
from docllm.agent.quota.limit import NOTHING, Permit
from docllm.agent.quota.provider_headers import share_left
from docllm.agent.quota.quotas import Quotas
from docllm.schemas.settings.quota import NO_LIMITS
from docllm.schemas.task.failures import ErrorClass

# How often a waiting call checks whether its permit has come.
RETRY_EVERY_S = 0.1
_UNSENT = frozenset({ErrorClass.NETWORK, ErrorClass.AUTH})
_SUCCESS = range(200, 300)


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
        name = LimitKind.ACCOUNT, route
        room = self.quotas.room(name, now_s)
        if room is None:
            return None
        find = self.configured.find
        quota = find(name)
        routes = (route for route in self._waiting if find((LimitKind.ACCOUNT, route)) == quota)
        return max(0, room - sum(len(self._waiting[route]) for route in routes))

    def has_room(self, name: LimitName, now_s: float) -> bool:
        """Return whether a limit has room beside running attempts' calls that wait for it."""
        room = self.quotas.room(name, now_s)
        waiting = chain.from_iterable(self._waiting.values())
        return room is None or room > sum(name in call.limits for call in waiting)

    def first_call(self, delivery: Delivery, route: str) -> WaitingCall:
        """Return what a task will cost on a route, and for which limits it waits."""
        return WaitingCall(
            charge=self._estimate(route, delivery.size),
            limits=(
                (LimitKind.TENANT, delivery.tenant),
                (LimitKind.TYPE, delivery.task_type),
            ),
        )

    def _estimate(self, route: str, size: CallSize) -> Charge:
        limits = self.configured.limits(route)
        return NOTHING if limits is NO_LIMITS else self.estimates.charge(route, size, limits)

    def reserve_first_call(self, delivery: Delivery, route: str) -> CallPermits | None:
        """Return the permits of an attempt, whose first call may begin; None if it may not."""
        if not self.configured.has_limit(route, delivery.tenant):
            return FREE_PERMITS
        tenant, now_s = (LimitKind.TENANT, delivery.tenant), self.clock.now_s()
        if not self.has_room(tenant, now_s):
            return None
        names, charge = _of_call(route, delivery.tenant), self._estimate(route, delivery.size)
        permit = self.quotas.permit(names, charge, delivery.size, now_s)
        if permit is None:
            return None
        permits = self.permits(route, delivery.tenant, delivery.size)
        permits.first = permit
        return permits

    def has_room_for_attempt(self, task_type: str) -> bool:
        """Return whether an attempt at a task of a type may begin."""
        now_s = self.clock.now_s()
        rooms = (self.quotas.room(name, now_s) for name in _of_attempt(task_type))
        return all(room is None or room > 0 for room in rooms)

    def begin_attempt(self, task_type: str) -> Permit | None:
        """Return the permit of an attempt at a task of a type; None if it may not begin."""
        now_s = self.clock.now_s()
        return self.quotas.permit(_of_attempt(task_type), NOTHING, CallSize(), now_s)

    def end_attempt(self, permit: Permit) -> None:
        """Give the permit of an attempt back."""
        self.quotas.note_ended(permit, NOTHING if permit.is_used else None)

    def permits(
        self,
        route: str,
        tenant: str,
        size: CallSize,
        closed: Callable[[], bool] = lambda: False,
    ) -> "AttemptCallPermits":
        """Return the permits of an attempt of which no call is reserved: each one waits.

        While its route is `closed`, no call is made.
        """
        return AttemptCallPermits(self, route=route, tenant=tenant, size=size, closed=closed)

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
    ) -> Permit | None:
        """Return the permit of a running attempt's call; None if there is none within `wait_s`."""
        charge = self._estimate(route, size)
        call = WaitingCall(charge=charge, limits=((LimitKind.TENANT, tenant),))
        begin = partial(self.quotas.permit, _of_call(route, tenant), charge, size)
        until_s = self.clock.now_s() + wait_s
        permit = begin(self.clock.now_s())
        if permit is not None:
            return permit
        waiting = self._waiting.setdefault(route, [])
        waiting.append(call)
        try:
            while permit is None and self.clock.now_s() < until_s:
                await self.clock.sleep(RETRY_EVERY_S)
                permit = begin(self.clock.now_s())
        finally:
            waiting.remove(call)
            if not waiting:
                self._waiting.pop(route, None)
        return permit

    async def wait_for_start(self, permit: Permit) -> None:
        """Wait until the call of a permit may be sent."""
        delay_s = permit.at_s - self.clock.now_s()
        if delay_s > 0:
            await self.clock.sleep(delay_s)

    def note_ended(self, route: str, permit: Permit, end: CallEnd | None) -> None:
        """Tell the quotas what a call was charged, and what its reply says of the limits."""
        if not permit.limits:
            return
        if end is None:
            self.quotas.note_ended(permit, None)
            return
        self._ended[route] += 1
        self.quotas.note_ended(permit, self._charged(route, permit, end))
        if permit.account is not None:
            headers = end.reply.headers if isinstance(end.reply, Reply) else {}
            refused = _is_refused(end)
            permit.account.note_reply(
                refused=refused,
                retry_after_s=(asked_for(headers, self.clock.utc_s()) or 0.0) if refused else 0.0,
                remaining=share_left(headers),
            )

    def _charged(self, route: str, permit: Permit, end: CallEnd) -> Charge | None:
        """Return what the provider charged for a call, or its estimate if that is unknown."""
        reply = end.reply
        if isinstance(reply, CallFailed):
            return None if reply.error_class in _UNSENT else permit.charge
        if reply is None or end.outcome is None:
            return permit.charge
        if reply.status not in _SUCCESS:
            return NOTHING  # the request counts, its tokens do not
        spent = end.outcome.spent
        if not spent.tokens_in and not spent.tokens_out:
            return permit.charge
        size = permit.size
        self.estimates.learn(route, size, spent.tokens_in, spent.tokens_out)
        return actual_charge(size, self.configured.limits(route), spent.tokens_in, spent.tokens_out)


class AttemptCallPermits:
    """The permits of one attempt's calls. `first` may be reserved before the attempt begins."""

    def __init__(
        self,
        gate: QuotaGate,
        *,
        route: str,
        tenant: str,
        size: CallSize,
        closed: Callable[[], bool],
    ) -> None:
        self._gate = gate
        self._route = route
        self._tenant = tenant
        self._size = size
        self._closed = closed
        self.first: Permit | None = None

    async def acquire(self, length: int, most_out: int | None, wait_s: float) -> Permit | None:
        """Wait until a call may be made; None if it may not within `wait_s`."""
        if self._closed():
            return None
        permit, self.first = self.first, None
        if permit is None:
            size = CallSize(task_type=self._size.task_type, input_bytes=length, most_out=most_out)
            permit = await self._gate.wait_for_permit(self._route, self._tenant, size, wait_s)
        if permit is None:
            return None
        try:
            await self._gate.wait_for_start(permit)
        except BaseException:
            self.release(permit, None)
            raise
        return permit

    def release(self, permit: Permit, end: CallEnd | None) -> None:
        """Give a permit back, and tell the limits how its call ended."""
        self._gate.note_ended(self._route, permit, end)

    def close(self) -> None:
        """Give back the first permit if no call was made."""
        first, self.first = self.first, None
        if first is not None:
            self.release(first, None)


def _of_call(route: str, tenant: str) -> tuple[LimitName, LimitName]:
    """Return the names of the limits of a call."""
    return (LimitKind.ACCOUNT, route), (LimitKind.TENANT, tenant)


def _of_attempt(task_type: str) -> tuple[LimitName, LimitName]:
    """Return the names of the limits of an attempt."""
    return (LimitKind.SLOTS, task_type), (LimitKind.TYPE, task_type)


def _is_refused(end: CallEnd) -> bool:
    """Return whether the provider refused a call because of its limits."""
    outcome = end.outcome
    return (
        outcome is not None
        and not isinstance(outcome, Succeeded)
        and effect_of(outcome.failure.error_class) is Effect.REFUSAL
    )
