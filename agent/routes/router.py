"""The routes of one agent, by name.

A route is made at its first call. The table is bounded, because tasks name the models.
"""

from collections.abc import Callable, Container, Hashable, Iterator
from dataclasses import replace
from itertools import chain
from math import inf

from docllm.agent.ports.outcome import Outcome
from docllm.agent.routes.evidence import RouteEvidence
from docllm.agent.routes.names import DEFAULT, RouteNames
from docllm.agent.routes.plan import RoutePlan
from docllm.agent.routes.route import Route, RouteCall
from docllm.producer.text.urgency import urgency_of
from docllm.schemas.agent_report import Reason, RouteFacts
from docllm.schemas.clients.llm_address import public
from docllm.schemas.codes import Code
from docllm.schemas.settings.account import account
from docllm.schemas.settings.changes import longest_timeout_s
from docllm.schemas.settings.config import Config, Trigger
from docllm.schemas.task.route_state import RouteState

MAX_ROUTES = 1000
SHOWN_REASONS = 5
REFUSED_PROMPT_PAUSE_S = 1.0


class Router:
    """Decides which calls may start, and learns from how they end. `jitter` draws from 0 to 1."""

    def __init__(self, *, config: Config, group: str, jitter: Callable[[], float]) -> None:
        self.naming = RouteNames(config)
        self._config = config
        self._group = group
        self._jitter = jitter
        self._routes: dict[str, Route] = {}
        for name in self.naming.configured:
            self._routes[name] = self._new(name)

    def __iter__(self) -> Iterator[Route]:
        return iter(list(self._routes.values()))

    def timeout_s(self, name: str) -> float:
        """Return how long a call on a route may take."""
        settings = self._config.routes.get(name)
        return (settings.timeout_s if settings else None) or self._config.llm.timeout_s

    @property
    def longest_timeout_s(self) -> float:
        """The longest time that a call may take on any route."""
        return longest_timeout_s(self._config)

    def apply(self, config: Config, now_s: float) -> list[str]:
        """Take over changed settings; return the closed routes that go on with another account.

        Models that nobody configured have the account of the default route.
        """
        before = {name: _target(self._config, name) for name in self.naming.configured}
        self._config = config
        self.naming.apply(config)
        for name in self.naming.configured:
            route = self._routes.get(name)
            if route is None:
                self._routes[name] = self._new(name)
            else:
                route.probes.timeout_s = self.timeout_s(name)
        with_other_account = {
            name for name, target in before.items() if target != _target(config, name)
        }
        return [
            route.name
            for route in self
            if (route.name if route.name in before else DEFAULT) in with_other_account
            and self.resume(route.name, now_s)
        ]

    # ---- calls

    def room(self, name: str, now_s: float, running: int, slots: int) -> int:
        """Return how many calls may be started now.

        `running` is how many calls of this route run or are about to.
        """
        route = self._routes.get(name)
        return max(0, slots - running) if route is None else route.room(now_s, running, slots)

    def begin(self, name: str, task_id: int, now_s: float) -> RouteCall | None:
        """Begin a call; None if there is no room any more.

        The caller gives it back with `ended`.
        """
        route = self._routes.get(name) or self._made(name, now_s)
        return route.begin(task_id, now_s)

    def ended(self, call: RouteCall, outcome: Outcome, now_s: float) -> Outcome:
        """Learn from how an attempt ended; return the outcome to settle.

        An attempt that failed by an outage is not counted if the route has stopped.
        """
        route = self._routes.get(call.route) or self._made(call.route, now_s)
        return route.ended(call, outcome, now_s)

    def is_free(self, name: str, now_s: float) -> bool:
        """Return whether nothing but slots limits the calls of a route."""
        route = self._routes.get(name)
        return route is None or route.is_free(now_s)

    def usual_s(self, name: str) -> float:
        """Return how long answers of a route usually take; infinity while that is unknown."""
        route = self._routes.get(name)
        return inf if route is None else route.usual_s

    def answered_since(self, name: str, at_s: float) -> bool:
        """Return whether a route takes calls and has answered one that began after `at_s`."""
        route = self._routes.get(name)
        return route is not None and route.answered_since(at_s)

    # ---- the cheap prompt

    def prompts(self, now_s: float) -> list[RouteCall]:
        """Begin the calls of the cheap prompt that are due.

        The caller gives each one back with `answered`.
        """
        return [call for route in self if (call := route.begin_prompt(now_s)) is not None]

    def answered(self, call: RouteCall, evidence: RouteEvidence, now_s: float) -> None:
        """Learn from the answer to the cheap prompt."""
        route = self._routes.get(call.route) or self._made(call.route, now_s)
        route.learn(call, evidence, now_s, REFUSED_PROMPT_PAUSE_S)

    # ---- people

    def resume(self, name: str, now_s: float) -> bool:
        """Let a route take calls again, as a person asked for; return whether it was closed."""
        route = self._routes.get(name)
        if route is None or not route.closed(now_s):
            return False
        route.reopen(now_s)
        return True

    def closed(self, name: str, now_s: float) -> bool:
        """Return whether a route takes at most one call at a time.

        That is so after a stop or a pause, until an answer comes.
        """
        route = self._routes.get(name)
        return route is not None and route.closed(now_s)

    def trigger(self, name: str, now_s: float) -> Trigger | None:
        """Return for what tasks may leave a closed route; None if they wait for it, or it is open.

        A rate limit is waited for.
        """
        route = self._routes.get(name)
        return None if route is None else route.trigger(now_s)

    def fallbacks(
        self, name: str, now_s: float, plan: RoutePlan | None = None, *, with_closed: bool = False
    ) -> list[str]:
        """Return the routes that take calls for the tasks of a closed route, in order.

        `plan` is that of one task. Without it, the routes are those that any of its tasks may take:
        those that begin there, and those that came there by the chain of another route.
        `with_closed` adds closed routes that take one call now. Without it, a route that has no
        tasks of its own would stay closed, although it works again.
        """
        trigger = self.trigger(name, now_s)
        if trigger is None:
            return []
        plans = (plan,) if plan else self.naming.plans_with(name)
        following = chain.from_iterable(plan.after(name, trigger) for plan in plans)
        return [
            route
            for route in dict.fromkeys(following)
            if not self.closed(route, now_s)
            or (with_closed and self._routes[route].takes_single_call(now_s))
        ]

    def waits(self, name: str, now_s: float) -> bool:
        """Return whether the tasks of a route wait: it is closed, and so are its fallbacks."""
        return self.closed(name, now_s) and not self.fallbacks(name, now_s)

    def closed_for_s(self, name: str, now_s: float) -> float:
        """Return for how long a route takes no calls at least.

        That is 0 if it takes calls or a probe is due.
        """
        route = self._routes.get(name)
        return 0.0 if route is None else route.closed_for_s(now_s)

    # ---- the agent's report

    def target(self, name: str) -> tuple[str, str]:
        """Return the model of a route and its address, as far as it may be shown."""
        configured = name in self.naming.configured
        settings = account(self._config, name if configured else DEFAULT)
        model = settings.model if configured else self.naming.model_of(name)
        return model or "", public(settings.base_url or "")

    def reasons(self, now_s: float) -> list[Reason]:
        """Return why no calls start, the worst first."""
        reasons = [
            replace(
                reason,
                model=model,
                address=address,
                fallback=next(iter(self.fallbacks(route.name, now_s, plan)), ""),
            )
            for route in self
            if (reason := route.why(now_s)) is not None
            for model, address in [self.target(route.name)]
            for plan in [self.naming.plan_of_route(route.name)]
        ]
        reasons.sort(key=lambda reason: (urgency_of(reason.code), reason.name))
        left_out = len(reasons) - SHOWN_REASONS
        summary = [Reason(Code.ROUTES_LEFT_OUT, count=left_out)] if left_out > 0 else []
        return reasons[:SHOWN_REASONS] + summary

    def reports(self, busy: Container[str], now_s: float, utc_s: float) -> list[RouteFacts]:
        """Return the routes that are closed, limited or busy, the worst first."""
        worst = list(reversed(RouteState))
        reports = (route.report(now_s, utc_s) for route in self)
        return sorted(
            (
                report
                for report in reports
                if report.since or report.allowed is not None or report.name in busy
            ),
            key=lambda report: (
                worst.index(RouteState(report.state)),
                not report.since,
                report.name,
            ),
        )

    # ---- the table

    def _made(self, name: str, now_s: float) -> Route:
        route = self._routes[name] = self._new(name)
        route.used_at_s = now_s
        if len(self._routes) > MAX_ROUTES:
            self._forget_one(now_s, route)
        return route

    def _new(self, name: str) -> Route:
        return Route(
            name=name,
            group=self._group,
            slots=self._config.agent.slots,
            timeout_s=self.timeout_s(name),
            park_s=self._config.agent.park_probe_s,
            jitter=self._jitter,
        )

    def _forget_one(self, now_s: float, newest: Route) -> None:
        """Forget the route that was idle for longest, if possible a healthy one."""
        idle = [route for route in self if route.idle and route is not newest]
        healthy = [route for route in idle if not route.closed(now_s)]
        if idle:
            longest = min(healthy or idle, key=lambda route: route.used_at_s)
            del self._routes[longest.name]


def _target(config: Config, route: str) -> Hashable:
    """Return where the calls of a configured route go, and as whom."""
    settings = account(config, route)
    return settings.identity, settings.model
