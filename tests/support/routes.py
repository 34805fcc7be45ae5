"""Routes for tests: outcomes as the judge makes them, and a provider on a hand-moved clock."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from docllm.agent.judge import CLASSES, Effect
from docllm.agent.ports.outcome import Dead, Failure, Outcome, Retry, Snooze, Spent, Succeeded
from docllm.agent.routes import RouteCall, Router
from docllm.agent.routes.evidence import by_outcome
from docllm.producer.text.agent_sentences import joined, sentences
from docllm.schemas.agent_report import AgentReport
from docllm.schemas.settings.config import AgentConfig, Config, LLMConfig
from docllm.schemas.task.failures import Disposition, ErrorClass
from docllm.schemas.task.result.codec import COMPLETION

ROUTE = "default"
OF = {
    effect: sorted(name for name, rule in CLASSES.items() if rule.route is effect)
    for effect in Effect
}
GOOD = Succeeded(b"answer", COMPLETION, Spent(call_id="trace"))


def routes(slots: int = 64, **config: object) -> Router:
    """Return an agent's routes whose random number is always in the middle."""
    made = {
        "agent": AgentConfig(slots=slots),
        "llm": LLMConfig(base_url="http://llm", timeout_s=60.0),
    } | config
    return Router(config=Config(**made), group="g", jitter=lambda: 0.5)  # type: ignore[arg-type]


def notice(router: Router, now_s: float) -> str:
    """Return what `status` says of an agent with these routes, without models and addresses."""
    reasons = (replace(reason, model="", address="") for reason in router.reasons(now_s))
    return joined(sentences(AgentReport(reasons=tuple(reasons)), "g"))


def failed(error_class: str = "SERVER") -> Retry:
    """Return a failure that counts."""
    return Retry(Failure(ErrorClass[error_class], "503: away"), Spent(call_id="trace"), "30s", 33.0)


def exhausted(error_class: str = "SERVER") -> Dead:
    """Return the failure of a last attempt."""
    return Dead(
        Failure(ErrorClass[error_class], "503: away"),
        Spent(call_id="trace"),
        Disposition.EXHAUSTED,
    )


def snoozed(error_class: str, delay_s: float = 10.0) -> Snooze:
    """Return a failure that does not count."""
    return Snooze(
        Failure(ErrorClass[error_class], "said the provider"), Spent(call_id="trace"), delay_s
    )


def call(
    router: Router, outcome: Outcome, now_s: float, task_id: int = 1, name: str = ROUTE
) -> Outcome:
    """Make one call that ends at once; return the outcome that is settled."""
    return router.ended(permitted(router, now_s, task_id, name), outcome, now_s)


def permitted(router: Router, now_s: float, task_id: int = 1, name: str = ROUTE) -> RouteCall:
    """Return the permission for one call; fail if there is none."""
    permit = router.begin(name, task_id, now_s)
    assert permit is not None
    return permit


def stopped(slots: int = 64, at_s: float = 100.0) -> Router:
    """Return routes whose default one an outage has just stopped."""
    router = routes(slots)
    while not router.closed(ROUTE, at_s):
        call(router, failed(), at_s)
    return router


def paused(router: Router, outcome: Outcome, now_s: float, name: str = ROUTE) -> None:
    """Refuse calls until the route pauses."""
    while not router.closed(name, now_s):
        call(router, outcome, now_s, name=name)


@dataclass(slots=True)
class BusyAgent:
    """An agent with endless tasks on one route, driven as the loop drives it.

    `answer` returns how a call that began at a given time ends, and when.
    """

    router: Router
    answer: Callable[[float, random.Random], tuple[float, Outcome]]
    slots: int
    # Repeatable runs.
    rng: random.Random = field(default_factory=lambda: random.Random(1))  # noqa: S311
    now_s: float = 0.0
    started_s: list[float] = field(default_factory=list)
    settled: list[tuple[float, Outcome]] = field(default_factory=list)
    most_while_closed: int = 0
    _running: list[tuple[float, RouteCall, Outcome]] = field(default_factory=list)

    def drive(self, until_s: float, step_s: float = 0.05) -> None:
        """Let time pass."""
        while self.now_s < until_s:
            self.now_s += step_s
            self._end()
            self._start()

    def _end(self) -> None:
        for call in sorted(
            (call for call in self._running if call[0] <= self.now_s), key=lambda call: call[0]
        ):
            self._running.remove(call)
            _, permit, outcome = call
            if permit.task_id is None:
                self.router.answered(permit, by_outcome(outcome), self.now_s)
            else:
                self.settled.append((self.now_s, self.router.ended(permit, outcome, self.now_s)))

    def _start(self) -> None:
        closed = self.router.closed(ROUTE, self.now_s)
        room = self.router.room(
            ROUTE,
            self.now_s,
            sum(call[1].task_id is not None for call in self._running),
            self.slots,
        )
        for _ in range(room):
            self._call(permitted(self.router, self.now_s, len(self.started_s)))
        for permit in self.router.prompts(self.now_s):
            self._call(permit)
        if closed:
            self.most_while_closed = max(self.most_while_closed, room)

    def _call(self, permit: RouteCall) -> None:
        latency_s, outcome = self.answer(self.now_s, self.rng)
        if permit.limit_s is not None and permit.limit_s < latency_s:
            latency_s, outcome = permit.limit_s, failed("AMBIGUOUS")
        self._running.append((self.now_s + latency_s, permit, outcome))
        self.started_s.append(self.now_s)

    def counted(self) -> int:
        """Return how many attempts counted."""
        return sum(isinstance(outcome, Retry | Dead) for _, outcome in self.settled)

    def calls(self, from_s: float, to_s: float) -> int:
        """Return how many calls began in an interval."""
        return sum(from_s <= at_s < to_s for at_s in self.started_s)

    def good(self, from_s: float, to_s: float) -> int:
        """Return how many successes were settled in an interval."""
        return sum(
            from_s <= at_s < to_s
            for at_s, outcome in self.settled
            if isinstance(outcome, Succeeded)
        )
