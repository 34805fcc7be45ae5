"""A route under all possible events, in any order."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from docllm.agent.judge import Effect
from docllm.agent.ports.outcome import Outcome, Released, Snooze
from docllm.agent.routes import RouteCall
from docllm.agent.routes.evidence import RouteEvidence
from docllm.agent.routes.sharing.board import BoardState, Peer
from tests.support.routes import GOOD, ROUTE, exhausted, failed, notice, routes, snoozed

SLOTS = 6
OUTCOMES = (
    GOOD,
    failed(),
    failed("AMBIGUOUS"),
    exhausted(),
    failed("BAD_OUTPUT"),
    failed("HANDLER"),
    snoozed("RATE", 3.0),
    snoozed("MONEY"),
    Released(),
)


class RouteMachine(RuleBasedStateMachine):
    """An agent with more tasks than slots, other agents, a person, and time."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 100.0
        self.router = routes(slots=SLOTS)
        (self.route,) = self.router
        self.member = Peer(self.route)
        self.running: list[RouteCall] = []
        self.prompts: list[RouteCall] = []
        self.generation = 0
        self.tasks = 0

    @rule()
    def start(self) -> None:
        for _ in range(self.router.room(ROUTE, self.now_s, len(self.running), SLOTS)):
            self.tasks += 1
            call = self.router.begin(ROUTE, self.tasks % 9, self.now_s)
            assert call is not None
            self.running.append(call)
        assert len(self.running) <= SLOTS

    @rule()
    def start_too_late(self) -> None:
        """Start a call whose claim was in progress while the route changed."""
        call = self.router.begin(ROUTE, self.tasks, self.now_s)
        if call is not None:
            self.router.ended(call, Released(), self.now_s)

    @rule()
    def prompt(self) -> None:
        self.prompts += self.router.prompts(self.now_s)

    @precondition(lambda self: self.running)
    @rule(place=st.integers(0, SLOTS), outcome=st.sampled_from(OUTCOMES))
    def end(self, place: int, outcome: Outcome) -> None:
        call = self.running.pop(place % len(self.running))
        settled = self.router.ended(call, outcome, self.now_s)
        if settled is not outcome:
            assert isinstance(settled, Snooze)
            assert 1.0 <= settled.delay_s <= 66.0
        outage = outcome in (failed(), failed("AMBIGUOUS"), exhausted())
        assert not (outage and self.route.stopped and settled is outcome)

    @precondition(lambda self: self.prompts)
    @rule(effect=st.sampled_from(Effect))
    def answer(self, effect: Effect) -> None:
        self.router.answered(self.prompts.pop(), RouteEvidence(effect, "SERVER: away"), self.now_s)

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.5, 70.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def person(self) -> None:
        self.router.resume(ROUTE, self.now_s)

    @rule(news=st.booleans(), stopped=st.booleans(), parked=st.booleans(), turn=st.booleans())
    def others(self, *, news: bool, stopped: bool, parked: bool, turn: bool) -> None:
        self.member.report(self.now_s)
        self.generation += news
        self.member.apply_state(
            BoardState(
                generation=self.generation,
                stopped=stopped,
                parked=parked,
                reason="SERVER: away",
                retry_s=1.0,
                turn=turn,
            ),
            self.now_s,
            self.now_s,
        )

    @rule()
    def alone(self) -> None:
        self.member.leave_board()

    @invariant()
    def calls_are_counted(self) -> None:
        assert len(self.route._running) == len(self.running)
        assert self.route._prompts == len(self.prompts)

    @invariant()
    def one_probe_at_a_time(self) -> None:
        probes = [
            call
            for call in (*self.running, *self.prompts)
            if call.generation == self.route.generation and call.limit_s is not None
        ]
        assert len(probes) <= 1
        assert self.route.stopped or not probes

    @invariant()
    def its_state_is_one(self) -> None:
        assert self.route.stopped is self.route._circuit.stopped
        assert self.route.stopped or not self.route.parked
        why = notice(self.router, self.now_s)
        assert bool(why) is (self.router.closed(ROUTE, self.now_s) or "been running" in why)

    def teardown(self) -> None:
        """Check that tasks soon run at full speed once the provider is well and the agent alone."""
        self.member.leave_board()
        for call in self.prompts:
            self.router.answered(call, RouteEvidence(Effect.UP), self.now_s)
        for second in range(1200):
            self.now_s += 1.0 if second % 10 else 70.0
            for call in self.running:
                self.router.ended(call, GOOD, self.now_s)
            self.running.clear()
            for call in self.router.prompts(self.now_s):
                self.router.answered(call, RouteEvidence(Effect.UP), self.now_s)
            self.start()
            if len(self.running) == SLOTS:
                break
        # Whether more may begin at this moment is a question of the pace.
        assert len(self.running) == SLOTS
        assert not self.router.closed(ROUTE, self.now_s)


TestRoute = RouteMachine.TestCase
TestRoute.settings = settings(max_examples=100, stateful_step_count=40)
TestRoute.__doc__ = (
    """One probe runs at a time, no count goes wrong, and a healthy provider gets all calls."""
)
