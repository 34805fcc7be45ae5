"""Admission: decides which tasks may be claimed, and which claimed task may start now.

Every rule of room, route, limits, type and lease is checked here. That a task is cancelled or has
expired is not: `Slots` ends such a task without a run.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from docllm.agent.execution.crash_suspects import CrashSuspects
from docllm.agent.execution.guard_gate import GuardGate
from docllm.agent.execution.quota_gate import QuotaGate
from docllm.agent.execution.settler import Settler
from docllm.agent.execution.start_decisions import AttemptStart, NotStarted
from docllm.agent.execution.type_hours import TypeHours
from docllm.agent.execution.unknown_types import UnknownTypes
from docllm.agent.handlers.calls.permits import FREE_PERMITS, CallPermits
from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.judge import Effect, effect_of
from docllm.agent.lease import Leases
from docllm.agent.ports import Clock
from docllm.agent.ports.outcome import Dead, Moved, Outcome, Retry, Snooze
from docllm.agent.quota.limit import Permit
from docllm.agent.routes import Router
from docllm.schemas.agent_report import Reason
from docllm.schemas.settings.config import Trigger
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.guard import Guard


@dataclass(kw_only=True, eq=False)
class Admission:
    """The rules by which the slots of one agent are filled."""

    slots: int
    leases: Leases
    routes: Router
    guards: GuardGate
    quotas: QuotaGate
    suspects: CrashSuspects
    settler: Settler
    unknown_types: UnknownTypes
    hours: TypeHours
    clock: Clock
    # Whether nothing more may begin, because the agent drains.
    leaving: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._busy: Counter[str] = Counter()  # by route: tasks that run or are being claimed
        self.free = self.slots  # slots that are free and not reserved
        # The first calls of deliveries that are taken for a claim, if they are within a limit.
        self._first_calls: dict[Delivery, CallPermits] = {}
        # The types, if they are limited, and the permits of deliveries, from when they are taken
        # for a claim until they leave their slots.
        self._of_types: dict[Delivery, tuple[str, Permit]] = {}
        self._routes_without_way_out: set[str] = set()

    # ---- before a claim

    def room(self) -> int:
        """Return how many more tasks may be claimed."""
        return self.free if self._may_claim() else 0

    def _may_claim(self) -> bool:
        return (
            not self.leaving
            and not self.suspects.runs_alone
            and self.guards.has_read_guards
            and self.settler.queued <= 2 * self.slots
            and self.leases.current.may_claim(self.clock.now_s())
        )

    def ends_per_s(self) -> float:
        """Return how many of the running tasks usually end within a second."""
        return sum(number / self.routes.usual_s(route) for route, number in self._busy.items())

    def may_claim_ahead(self, routes: Iterable[str]) -> bool:
        """Return whether tasks may be claimed before a slot is free for them.

        `routes` are those for which deliveries are ready. None may have another limit than the
        slots: its tasks would never get one while other tasks are claimed ahead. Tasks that a
        guard may hold back, or that a crash suspect may take with it, are claimed when they start.
        """
        now_s = self.clock.now_s()
        return (
            self._may_claim()
            and not self.guards.any_raised
            and not self.suspects.is_running
            and all(self.routes.is_free(route, now_s) for route in routes)
        )

    def needs_only_slot(self, delivery: Delivery) -> bool:
        """Return whether a ready delivery, on a route without limits, waits for a slot alone."""
        return (
            delivery.task_type in self.hours.plain
            and not self.quotas.configured.has_limit(delivery.route, delivery.tenant)
            and (delivery.row is None or not delivery.row.lease_losses)
            and delivery.kept_answer is None
        )

    def room_for(self, route: str, taken: int = 0) -> int:
        """Return how many more tasks of a route may be claimed, by the rules of the route alone.

        `taken` have been taken for the next claim, and their first calls are reserved.
        """
        now_s = self.clock.now_s()
        if taken and self.routes.closed(route, now_s):
            return 0  # it takes one call at a time
        room = self.routes.room(route, now_s, self._busy[route] + taken, self.slots)
        granted = self.quotas.room(route, now_s)
        return room if granted is None else min(room, granted)

    def is_type_full(self, delivery: Delivery) -> bool:
        """Return whether the limits of a delivery's type have no room for it."""
        name = delivery.task_type
        if name in self.hours.plain:
            return False
        held = self._of_types.get(delivery)
        is_held = held is not None and held[0] == name
        return not is_held and not self.quotas.has_room_for_attempt(name)

    def route_suspect(self, suspect: Delivery) -> bool:
        """Set the route of a crash suspect; return whether the suspect may be claimed.

        It is a fallback if the suspect's own route is closed. A suspect that must run alone waits
        until nothing else is claimed under the lease. Otherwise a suspect that kills the agent
        would take other tasks with it.
        """
        routes = (suspect.own_route, *self.fallbacks(suspect.own_route, suspect))
        route = next((route for route in routes if self.room_for(route) > 0), None)
        if self.room() <= 0 or route is None:
            return False
        suspect.route = route
        alone = not self._busy and not self.leases.current.running
        return self.suspects.may_run(suspect) and (alone or not suspect.runs_alone)

    @contextmanager
    def reserved(self, deliveries: Collection[Delivery]) -> Iterator[None]:
        """Reserve slots for a claim that is under way."""
        # A copy, because the claim may change the route of a delivery without a body.
        routes = Counter([delivery.route for delivery in deliveries])
        self._busy.update(routes)
        self.free -= len(deliveries)
        try:
            yield
        finally:
            self.free += len(deliveries)
            for route, number in routes.items():
                self._leave_route(route, number)

    def reserve_call(self, delivery: Delivery) -> bool:
        """Reserve the first call of a delivery within the limits of its account, tenant and type.

        Return whether it may be claimed. Give back what was not used by `release_calls`.
        """
        is_plain = delivery.task_type in self.hours.plain
        if not is_plain and self.is_type_full(delivery):
            return False
        permits = self.quotas.reserve_first_call(delivery, delivery.route)
        if permits is None:
            return False
        if permits is not FREE_PERMITS:
            self._first_calls[delivery] = permits
        if not is_plain:
            self._hold_type(delivery)
        return True

    def _hold_type(self, delivery: Delivery) -> None:
        """Hold the permit of a delivery's type. A body that was read may show another type."""
        name, held = delivery.task_type, self._of_types.get(delivery)
        if held is not None and held[0] == name:
            return
        self._drop_type(delivery)
        permit = None if name in self.hours.plain else self.quotas.begin_attempt(name)
        if permit is not None:
            self._of_types[delivery] = name, permit

    def _drop_type(self, delivery: Delivery) -> None:
        """Give the permit of a delivery's type back, if it has one."""
        if delivery in self._of_types:
            _, permit = self._of_types.pop(delivery)
            self.quotas.end_attempt(permit)

    def reserve_call_of_suspect(self, suspect: Delivery) -> bool:
        """Reserve a crash suspect's first call; return whether the suspect may be claimed.

        A suspect whose call cannot be reserved stays ready, so that the quotas keep asking for it.
        """
        return self.route_suspect(suspect) and self.reserve_call(suspect)

    def release_calls(self, deliveries: Iterable[Delivery]) -> None:
        """Give back the reserved calls of deliveries whose attempts have not begun."""
        if not self._first_calls and not self._of_types:
            return
        for delivery in deliveries:
            if delivery in self._first_calls:
                self._first_calls.pop(delivery).close()
            if delivery.state is not DeliveryState.RUNNING:
                self._drop_type(delivery)

    def tasks_wait_for(self, route: str) -> bool:
        """Return whether the tasks of a route wait, because the route takes only probes.

        Tasks that may leave the route do not wait if a fallback takes calls.
        """
        now_s = self.clock.now_s()
        has_no_way_out = route in self._routes_without_way_out and self.routes.closed(route, now_s)
        return has_no_way_out or self.routes.waits(route, now_s)

    def fallbacks(self, route: str, delivery: Delivery | None = None) -> list[str]:
        """Return the routes that take a call for a task of a closed route, in order.

        Without a task, the routes are those that any task may take which waits for this route.
        """
        plan, row = (delivery.plan, delivery.row) if delivery else (None, None)
        following = self.routes.fallbacks(route, self.clock.now_s(), plan, with_closed=True)
        return [name for name in following if row is None or not self.guards.keeps_off(row, name)]

    def note_no_way_out(self, route: str, *, has_no_way_out: bool) -> None:
        """Note whether the tasks that wait for a closed route may not leave it."""
        if has_no_way_out:
            self._routes_without_way_out.add(route)
        else:
            self._routes_without_way_out.discard(route)

    def busy_routes(self) -> Mapping[str, int]:
        """Return how many tasks run or are being claimed, by route."""
        return self._busy

    def reasons(self, now_s: float) -> list[Reason]:
        """Return why tasks wait, for the agent's report.

        The fallback of a closed route is named only if tasks run there.
        """
        without_way_out = self._routes_without_way_out
        return [
            *self.unknown_types.reasons(now_s),
            *self.hours.reasons(),
            *self.quotas.quotas.reasons(now_s),
            *(
                replace(reason, fallback="") if reason.name in without_way_out else reason
                for reason in self.routes.reasons(now_s)
            ),
        ]

    # ---- before an attempt

    def decide(self, delivery: Delivery) -> AttemptStart | NotStarted | Guard | Moved:
        """Decide about a claimed task: it may run now, it is given back, or it has to wait.

        It waits behind a raised guard, or in the ledger, to which it is then moved.
        A task of an unknown type waits even if it could join a guard's look, because it could only
        fail there. A task whose batch does not allow its present route is given back for its first
        allowed one.
        """
        now_s = self.clock.now_s()
        if (reason := self._refusal(delivery, now_s) or self._reason_to_wait(delivery)) is not None:
            return reason
        plan = delivery.plan
        if not (plan.is_free and delivery.route == plan.route) and (
            not plan.allows(delivery.route) or self._guarded_fallback(delivery)
        ):
            return NotStarted.ROUTE
        is_plain = delivery.task_type in self.hours.plain
        if not is_plain and self.is_type_full(delivery):
            return NotStarted.TYPE
        permits = self._first_calls.pop(delivery, None) if self._first_calls else None
        permits = permits or self.quotas.reserve_first_call(delivery, delivery.route)
        if permits is None:
            return NotStarted.QUOTA
        route_call = self.routes.begin(delivery.route, delivery.task_id, now_s)
        if route_call is None:
            permits.close()
            return NotStarted.ROUTE
        if not is_plain or self._of_types:
            self._hold_type(delivery)
            if delivery in self._of_types:
                self._of_types[delivery][1].is_used = True
        refused_alone = delivery.auth_failed_on == delivery.route and (
            self.routes.answered_since(delivery.route, delivery.auth_failed_at_s)
        )
        return AttemptStart(route_call, permits, refused_alone)

    def _refusal(self, delivery: Delivery, now_s: float) -> NotStarted | None:
        """Return why nothing may start now, whatever its route; None if it may."""
        if self.leaving:
            return NotStarted.LEAVING
        lease = delivery.lease
        if lease is None or not lease.may_call(now_s):
            return NotStarted.LEASE
        if delivery.suspect and not self.suspects.may_run(delivery):
            return NotStarted.SUSPECT
        return None

    def _reason_to_wait(self, delivery: Delivery) -> Guard | Moved | None:
        row = delivery.row
        if row is None:
            return None
        if row.type not in self.hours.plain:
            if not self.unknown_types.knows(row.type):
                return self.unknown_types.move(delivery)
            if not self.hours.is_awake(row.type):
                return self.hours.move_until_hours(row.type, delivery.task_id)
        if row.routes_allowed is not None or not delivery.plan.is_free:
            delivery.plan = delivery.plan.within_batch(row.routes_allowed)
            if refusal := delivery.plan.refusal:
                return self.unknown_types.move_for_route(delivery, refusal)
        stopped = self.guards.guard_of(row, delivery.route)
        return None if stopped is not None and delivery.is_on_fallback else stopped

    def start_on_fallback(self, delivery: Delivery, route: str) -> AttemptStart | None:
        """Let a running attempt continue on another route; None if that route takes no call now.

        The attempt keeps its slot, which counts for the other route from then on.
        """
        now_s = self.clock.now_s()
        if self.leaving or not delivery.may_call(now_s) or not self.is_open_for(delivery, route):
            return None
        start = self._start(delivery, route, now_s)
        if start is not None:
            self._leave_route(delivery.route)
            delivery.route = route
            self._busy[route] += 1
        return start

    def is_open_for(self, delivery: Delivery, route: str) -> bool:
        """Return whether a fallback takes calls of a claimed task, regardless of its limits."""
        row = delivery.row
        is_kept_off = row is None or self.guards.keeps_off(row, route)
        return not is_kept_off and delivery.plan.allows(route) and not self.closed(route)

    def start_again(self, delivery: Delivery) -> AttemptStart | None:
        """Let a running attempt make another call on its route, which refused one before.

        The call may be the probe of a stopped route. Return None if the route takes no call now.
        """
        return self._start(delivery, delivery.route, self.clock.now_s())

    def may_call_again(self, delivery: Delivery) -> bool:
        """Return whether an attempt may make further calls, regardless of room on its route."""
        row, is_leased = delivery.row, delivery.may_call(self.clock.now_s())
        if self.leaving or row is None or not is_leased:
            return False
        if delivery.is_on_fallback:
            return not self.guards.keeps_off(row, delivery.route)
        return self.guards.guard_of(row, delivery.route) is None

    def _start(self, delivery: Delivery, route: str, now_s: float) -> AttemptStart | None:
        permits = self.quotas.reserve_first_call(delivery, route)
        if permits is None:
            return None
        route_call = self.routes.begin(route, delivery.task_id, now_s)
        if route_call is None:
            permits.close()
            return None
        return AttemptStart(route_call, permits, refused_alone=False)

    def trigger(self, route: str, outcome: Retry | Snooze | Dead) -> Trigger | None:
        """Return the trigger by which a task may leave the route of its failed call, or None.

        A class with the name of a trigger is that trigger; a prompt that was cut is too long.
        Otherwise the route must have stopped.
        """
        error_class = outcome.failure.error_class
        if error_class == ErrorClass.INPUT_CUT:
            return Trigger.TOO_LONG
        try:
            return Trigger(error_class)
        except ValueError:
            is_of_route = effect_of(outcome.failure.error_class) in {Effect.OUTAGE, Effect.LOCKED}
            return self.routes.trigger(route, self.clock.now_s()) if is_of_route else None

    def closed(self, route: str) -> bool:
        """Return whether a route takes one call at a time at most."""
        return self.routes.closed(route, self.clock.now_s())

    def closed_for_s(self, route: str) -> float:
        """Return for how long a route takes no calls at least."""
        return self.routes.closed_for_s(route, self.clock.now_s())

    def _guarded_fallback(self, delivery: Delivery) -> bool:
        """Return whether a delivery is on its fallback and a guard stops its tasks there."""
        row = delivery.row
        return (
            delivery.is_on_fallback
            and row is not None
            and self.guards.keeps_off(row, delivery.route)
        )

    def end(self, start: AttemptStart, outcome: Outcome) -> Outcome:
        """Give back what an attempt started with; return the outcome to settle.

        An attempt that failed by an outage is not counted if its route has stopped.
        """
        if start.call_permits is not FREE_PERMITS:
            start.call_permits.close()
        return self.routes.ended(start.route_call, outcome, self.clock.now_s())

    def enter(self, delivery: Delivery) -> None:
        """Note that a delivery has a slot."""
        self.free -= 1
        self._busy[delivery.route] += 1
        row = delivery.row
        if row is not None and row.lease_losses:
            self.suspects.enter(delivery)

    def leave(self, delivery: Delivery) -> None:
        """Note that a delivery has left its slot."""
        if delivery.row is not None and delivery.row.lease_losses:
            self.suspects.leave(delivery)
        if delivery in self._of_types:
            self._drop_type(delivery)
        self.free += 1
        self._busy[delivery.route] -= 1
        if not self._busy[delivery.route]:
            self._leave_route(delivery.route, 0)

    def stop_starting(self) -> None:
        """Let nothing more begin, because the agent leaves."""
        self.leaving = True

    def _leave_route(self, route: str, number: int = 1) -> None:
        """Count fewer tasks. Routes come from tasks, so a route without tasks is dropped."""
        self._busy[route] -= number
        if not self._busy[route]:
            del self._busy[route]
