"""The routes that one task may take: its own one and the fallbacks, in order. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from docllm.schemas.settings.config import Trigger
from docllm.schemas.settings.fallback import FallbackStep


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """The route of a task, its chain of fallbacks, and the bounds of both.

    `allowed` are the names in `routes_allowed` of its line, and `batch_allowed` those of its batch,
    which hold if its line has none; None if nothing bounds it. `known` is false if the task names a
    route that this agent's settings do not have.
    """

    route: str
    steps: tuple[FallbackStep, ...] = ()
    allowed: frozenset[str] | None = None
    known: bool = True
    batch_allowed: frozenset[str] | None = None
    # Whether the task may take its own route whatever the bounds of others are.
    is_free: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        is_free = self.known and self.allowed is None and self.batch_allowed is None
        object.__setattr__(self, "is_free", is_free)

    def within(self, allowed: Iterable[str] | None) -> "RoutePlan":
        """Return the plan within the `routes_allowed` of the task's line."""
        return self if allowed is None else replace(self, allowed=frozenset(allowed))

    def within_batch(self, allowed: Iterable[str] | None) -> "RoutePlan":
        """Return the plan within the present `routes_allowed` of the task's batch."""
        if allowed is None and self.batch_allowed is None:
            return self
        bounds = None if allowed is None else frozenset(allowed)
        return self if bounds == self.batch_allowed else replace(self, batch_allowed=bounds)

    @property
    def first(self) -> str:
        """The route on which the task begins; its own route if it may take no route."""
        return next(iter(self), self.route)

    def __iter__(self) -> Iterator[str]:
        """Return the routes that the task may take, the first one first."""
        names = (self.route, *(step.route for step in self.steps)) if self.known else ()
        return (name for name in names if self.allows(name))

    def allows(self, route: str) -> bool:
        """Return whether `routes_allowed` lets the task run on this route."""
        return self._bounds is None or route in self._bounds

    @property
    def _bounds(self) -> frozenset[str] | None:
        return self.batch_allowed if self.allowed is None else self.allowed

    def after(self, route: str, trigger: Trigger) -> Iterator[str]:
        """Return the routes to which the task may go on after this failure on a route."""
        passed = route == self.route
        for step in self.steps:
            if passed and trigger in step.triggers and self.allows(step.route):
                yield step.route
            passed = passed or step.route == route

    @property
    def has_fallback(self) -> bool:
        """Whether the task may take more than one route."""
        return bool(self.steps) and sum(1 for _ in self) > 1

    @property
    def refusal(self) -> str:
        """Why the task may take no route of this agent; empty if it may take one."""
        if not self.known:
            return f"no agent that received it has a route {self.route}"
        if next(iter(self), None) is None:
            bounds = ", ".join(sorted(self._bounds or ()))
            return (
                f"its routes_allowed ({bounds}) contain neither {self.route} nor a fallback of it"
            )
        return ""
