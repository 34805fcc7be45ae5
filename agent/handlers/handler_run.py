"""What one run of a handler or hook is given, and the means that all runs share."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from docllm.agent.handlers.calls.call_plan import CallMeasures, CallPlan
from docllm.agent.handlers.calls.cut_prompts import CutPrompts
from docllm.agent.handlers.calls.judging import Judged
from docllm.agent.handlers.calls.other_route import OtherRoute
from docllm.agent.handlers.calls.permits import CallPermits, FreePermits
from docllm.agent.handlers.calls.traces import NO_TRACE, AttemptTrace
from docllm.agent.handlers.documents import DocumentReader
from docllm.agent.handlers.held_lock import AttemptLocks
from docllm.agent.handlers.named_limits import NamedLimits
from docllm.agent.judge import Tier, tiers_of
from docllm.agent.ports import CallFailed, Clock, Reply, RouteClient
from docllm.agent.ports.outcome import Dead, HandlerState, Outcome, Retry, Snooze, Spent
from docllm.agent.quota.estimate import Estimates
from docllm.agent.reporting.handler_errors import HandlerErrors
from docllm.agent.reporting.odd_answers import OddAnswers
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.settings.config import NO_SETTINGS, Price, TypeConfig
from docllm.schemas.task.line.parsing import DEFAULT_TENANT
from docllm.schemas.task.record.lanes import Lane

MAX_PLANS = 1_000

ReadChildren = Callable[[int, int], Awaitable[Sequence[Sequence[Any]]]]


@dataclass(frozen=True, slots=True)
class Inherited:
    """What a task's follow-ups take from it if their lines do not say otherwise.

    `depth` is how many ancestors the task itself has. `routes_allowed` bounds the routes of its
    batch.
    """

    depth: int = 0
    tenant: str = DEFAULT_TENANT
    lane: Lane = Lane.NORMAL
    routes_allowed: tuple[str, ...] | None = None


# Takes a line and the `routes_allowed` of its batch; returns why the line may take no route, or "".
RouteRefusal = Callable[[bytes, tuple[str, ...] | None], str]


async def no_children(_task_id: int, _after: int) -> Sequence[Sequence[Any]]:
    """Know of no join."""
    raise ValueError("only a join has children")


class MadeCall(NamedTuple):
    """A call that was made: its reply, what the reply means, and when its attempt began."""

    reply: Reply | CallFailed
    outcome: Judged
    began_s: float


@dataclass(slots=True)
class HandlerRun:
    """What is given for one attempt at a claimed task, or for one run of a hook.

    - `value`: the record's bytes.
    - `counted_before`: how many attempts were counted before this one, of `max_attempts`.
    - `snoozes`: how often in a row the task was snoozed before.
    - `left_s`: the rest of the claim's time, which no call may exceed.
    - `route`: the route on which the attempt begins.
    - `is_on_fallback`: whether that is a fallback, to which the model that the task names does not
      belong.
    - `limit_s`: the time limit of a probe's call; None for any other call.
    - `refused_alone`: whether the task met AUTH before, and its route answered other calls since.
    - `may_call`: returns whether the claim's lease is good.
    - `route_after_failure`: takes the outcome of a failed call; returns the route on which to make
      it again, or the outcome to settle.
    - `retry_on_route`: takes the outcome of a failed call too. Returns the same route if it takes a
      call now, None if it may take one later, and otherwise the outcome to settle.
    - `inherited`: what the task's follow-ups take from it.
    - `call_permits`: lets each call wait for its permit within the provider's limits.
    - `locks`: takes locks for the attempt.
    - `output_uri`: where the batch sends results; the task's line wins.
    - `output_refusal`: returns the outcome to settle if results cannot be written there now; None
      if they can.
    - `trace`: records the attempt's calls as spans.
    - `first_call`: the first call of the attempt, if it was made before the handler began.
    - `agents_lost`: how many agents were lost over the task since an attempt last counted.
    - `losses`: how many of its runs were cut off before, ever.
    - `state`: what the handler kept when it came back the last time, if it did.
    - `is_changed`: whether replays have changed what the task runs with.
    - `note_spent`: is called after each call with the attempt's cost so far, because a cancelled
      attempt returns no outcome.
    """

    task_id: int
    batch: str
    value: bytes
    counted_before: int
    max_attempts: int
    snoozes: int
    left_s: float
    route: str
    limit_s: float | None
    refused_alone: bool
    may_call: Callable[[], bool]
    locks: AttemptLocks
    note_spent: Callable[[Spent], None] = lambda _spent: None
    route_after_failure: Callable[[Retry | Snooze | Dead], OtherRoute | Outcome] = lambda outcome: (
        outcome
    )
    retry_on_route: Callable[[Outcome], OtherRoute | Outcome | None] = lambda outcome: outcome
    call_permits: CallPermits = field(default_factory=FreePermits)
    inherited: Inherited = field(default_factory=Inherited)
    output_uri: str = ""
    output_refusal: Callable[[str], Outcome | None] = lambda _uri: None
    trace: AttemptTrace = NO_TRACE
    first_call: MadeCall | None = None
    agents_lost: int = 0
    losses: int = 0
    is_on_fallback: bool = False
    state: HandlerState | None = None
    is_changed: bool = False


@dataclass(frozen=True, slots=True)
class Tools:
    """The means that all contexts share.

    `route_client` returns the client of a route. `apart` runs work that is too heavy for this
    process. `jitter` draws a number from 0 to 1. `types` is by task type. `failed` is called with
    every error that a handler raises. `errors` logs those that a handler did not raise on purpose.
    `odd_answers` counts the answers that are not as OpenAI would send them.
    `route_refusal` returns why a follow-up's line may take no route.
    `usual_limit_s` is the time of a handler whose type sets no limit. `token_ratios` are the
    learned tokens per byte, by model and type of task. `cut_prompts` finds prompts that were cut.
    `limits` are those that handlers name. `children` returns the next tasks for which the join with
    this number waited, as `AttemptContext.children`. `measures` takes how long calls take; None if
    nobody reads it.
    """

    route_client: Callable[[str], RouteClient]
    documents: DocumentReader
    clock: Clock
    apart: Executor
    jitter: Callable[[], float]
    prices: Mapping[str, Price]
    tiers: Sequence[Tier]
    types: Mapping[str, TypeConfig]
    max_attempts_of: Callable[[str], int]
    limits: NamedLimits
    children: ReadChildren = no_children
    route_refusal: RouteRefusal = lambda _line, _allowed: ""
    failed: Callable[[BaseException], None] = lambda _error: None
    errors: HandlerErrors = field(default_factory=HandlerErrors)
    odd_answers: OddAnswers = field(default_factory=OddAnswers)
    usual_limit_s: float = math.inf
    token_ratios: Estimates = field(default_factory=Estimates)
    cut_prompts: CutPrompts = field(default_factory=CutPrompts)
    measures: CallMeasures | None = None
    _plans: dict[tuple[str, str], CallPlan] = field(default_factory=dict, init=False)

    def limit_s(self, task_type: str) -> float:
        """Return the most time that an attempt of a type may have."""
        return self.types.get(task_type, NO_SETTINGS).time_limit_s or self.usual_limit_s

    def plan(self, task_type: str, route: str) -> CallPlan:
        """Return how calls of a type are made on a route."""
        return self._plans.get((task_type, route)) or self._prepared(task_type, route)

    def _prepared(self, task_type: str, route: str) -> CallPlan:
        rules = self.types.get(task_type, NO_SETTINGS)
        plan = CallPlan(
            task_type=task_type,
            route=route,
            client=self.route_client(route),
            rules=rules,
            tiers=tiers_of(rules.tiers) if rules.tiers else self.tiers,
            tools=self,
        )
        if len(self._plans) >= MAX_PLANS:  # tasks name their types and models
            self._plans.clear()
        self._plans[task_type, route] = plan
        return plan
