"""The gate through which calls pass: what is asked for, held and settled."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from docllm.agent.execution.crash_suspects import CrashSuspects
from docllm.agent.execution.quota_gate import QuotaGate
from docllm.agent.execution.start_decisions import AttemptStart, NotStarted
from docllm.agent.handlers.calls.permits import CallEnd, CallPermits
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.ports import CallFailed, Reply
from docllm.agent.ports.outcome import Dead, Failure, Snooze, Spent, Succeeded
from docllm.agent.quota.estimate import CallSize
from docllm.agent.quota.grants import Charge, QuotaAnswer, QuotaRequest, WaitingCall
from docllm.schemas.agent_report import Reason
from docllm.schemas.codes import Code
from docllm.schemas.settings.config import Config, LLMConfig
from docllm.schemas.settings.quota import QuotaLimits
from docllm.schemas.task.failures import ErrorClass
from tests.support.routes import ROUTE, routes
from tests.support.slots import SlotsHarness, claimed, ending, quota_gate_of

CONFIG = Config(
    llm=LLMConfig(base_url="http://h/v1", model="mini", limits=QuotaLimits(rpm=60, tpm=6000))
)
CHARGE = Charge(tokens_in=100, tokens_out=500)


@dataclass
class StepClock:
    """A clock that moves when somebody waits."""

    at_s: float = 100.0

    def now_s(self) -> float:
        return self.at_s

    def utc_s(self) -> float:
        return 1_800_000_000.0

    async def sleep(self, delay_s: float) -> None:
        self.at_s += delay_s
        await asyncio.sleep(0)


class GrantingStore:
    """Answers a gate's asks; `requests` are those that it got."""

    def __init__(self, gate: QuotaGate, clock: StepClock) -> None:
        self._gate, self._clock = gate, clock
        self.requests: list[QuotaRequest] = []

    def grant(self, *asks: WaitingCall, binding: str = "", starts_in_s: float = 0.0) -> None:
        """Grant these asks, and no others."""
        now_s = self._clock.now_s()
        self._gate.quotas.set_waiting(ROUTE, asks, now_s)
        (member,) = self._gate.quotas.with_news(now_s)
        request = member.next_request(now_s)
        self.requests.append(request)
        answer = QuotaAnswer(
            granted=tuple(not binding for _ in request.waiting),
            seats=None,
            paused_s=0.0,
            accepted_share=1.0,
            agents=3,
            binding=binding,
            starts_in_s=starts_in_s,
        )
        member.apply_answer(request, answer, now_s, now_s)


def made(config: Config = CONFIG) -> tuple[QuotaGate, GrantingStore, StepClock]:
    clock = StepClock()
    gate = quota_gate_of(config, clock)
    return gate, GrantingStore(gate, clock), clock


def task(clock: StepClock) -> Delivery:
    delivery = claimed(1, clock.now_s())
    delivery.size = CallSize(input_bytes=400)
    return delivery


def granted(*, starts_in_s: float = 0.0) -> tuple[QuotaGate, GrantingStore, StepClock, CallPermits]:
    """Return a gate, and the permits of an attempt whose first call was granted."""
    gate, store, clock = made()
    delivery = task(clock)
    store.grant(gate.first_call(delivery, ROUTE), starts_in_s=starts_in_s)
    permits = gate.reserve_first_call(delivery, ROUTE)
    assert permits is not None
    return gate, store, clock, permits


def reply(status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(status, headers or {}, b"{}")


def test_without_limits_every_task_is_admitted() -> None:
    """Nobody is asked."""
    gate, _, clock = made(Config())

    assert gate.room(ROUTE, clock.now_s()) is None
    assert gate.reserve_first_call(task(clock), ROUTE) is not None


def test_a_task_is_admitted_when_its_call_was_granted() -> None:
    """One that was not granted waits, and the report says for which limit."""
    gate, store, clock = made()
    delivery = task(clock)

    assert gate.first_call(delivery, ROUTE).charge == CHARGE
    assert gate.room(ROUTE, clock.now_s()) == 0
    assert gate.reserve_first_call(delivery, ROUTE) is None
    store.grant(gate.first_call(delivery, ROUTE))
    assert gate.room(ROUTE, clock.now_s()) == 1
    assert gate.reserve_first_call(delivery, ROUTE) is not None
    assert gate.reserve_first_call(delivery, ROUTE) is None
    store.grant(gate.first_call(delivery, ROUTE), binding="rpm")
    assert gate.quotas.reasons(clock.now_s()) == [
        Reason(Code.ROUTE_LIMITED, ROUTE, text="rpm", count=60, agents=3)
    ]


RATE = Snooze(Failure(ErrorClass.RATE, "429"), Spent(), 2.0)


@pytest.mark.parametrize(
    ("end", "refund", "refused"),
    [
        # Used less, used more, nobody knows, not sent, perhaps billed, refused, cancelled, no call.
        (CallEnd(reply=reply(), outcome=Succeeded(b"", 1, Spent("m", 90, 50))), (0, 10, 450), 0),
        (
            CallEnd(reply=reply(), outcome=Succeeded(b"", 1, Spent("m", 200, 600))),
            (0, -100, -100),
            0,
        ),
        (CallEnd(reply=reply(), outcome=Succeeded(b"", 1, Spent("m"))), (0, 0, 0), 0),
        (CallEnd(reply=CallFailed(ErrorClass.NETWORK, "no route")), (1, 100, 500), 0),
        (CallEnd(reply=CallFailed(ErrorClass.AMBIGUOUS, "timeout")), (0, 0, 0), 0),
        (CallEnd(reply=reply(429, {"retry-after": "7"}), outcome=RATE), (0, 100, 500), 1),
        (
            CallEnd(reply=reply(400), outcome=Dead(Failure(ErrorClass.BAD_REQUEST, "no"), Spent())),
            (0, 100, 500),
            0,
        ),
        (CallEnd(), (0, 0, 0), 0),
        (None, (1, 100, 500), 0),
    ],
)
async def test_a_call_is_settled_by_how_it_ended(
    end: CallEnd | None, refund: tuple[int, int, int], refused: int
) -> None:
    """What it did not use is given back, and what it used more is owed."""
    _gate, store, _clock, permits = granted()
    permit = await permits.acquire(400, None, 60.0)
    assert permit is not None
    permits.release(permit, end)
    permits.close()
    store.grant()

    told = store.requests[-1]
    given_back = told.refund.requests, told.refund.tokens_in, told.refund.tokens_out
    assert given_back == refund
    assert (told.refused, told.retry_after_s, told.running) == (refused, 7.0 * refused, 0)


async def test_the_headers_say_what_is_left() -> None:
    """The lowest share is passed on."""
    _gate, store, _clock, permits = granted()
    headers = {"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "6"}
    permit = await permits.acquire(400, None, 60.0)
    assert permit is not None
    permits.release(
        permit, CallEnd(reply=reply(200, headers), outcome=Succeeded(b"", 1, Spent("m", 9, 9)))
    )
    store.grant()

    assert store.requests[-1].remaining == 0.1


def test_an_attempt_without_a_call_gives_its_turn_back() -> None:
    """A handler may fail before its first call, or need no call."""
    _gate, store, _clock, permits = granted()

    permits.close()
    store.grant()

    assert store.requests[-1].refund.requests == 1


def test_a_call_waits_for_its_start() -> None:
    """The calls of an account begin one after another."""
    _gate, _store, clock, permits = granted(starts_in_s=0.4)

    assert asyncio.run(permits.acquire(400, None, 60.0)) is not None

    assert clock.now_s() == pytest.approx(100.4)


async def test_a_call_that_is_cancelled_before_its_start_is_given_back() -> None:
    """The agent leaves, or the attempt's time has ended."""
    _gate, store, _clock, permits = granted(starts_in_s=0.4)
    call = asyncio.create_task(permits.acquire(400, None, 60.0))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()
    store.grant()

    assert (store.requests[-1].refund.requests, store.requests[-1].running) == (1, 0)


async def test_a_second_call_waits_for_its_turn_and_comes_before_new_tasks() -> None:
    """A second call asks with its own size; a task that has not begun leaves it the grant."""
    gate, store, clock, permits = granted()
    first = await permits.acquire(400, None, 60.0)
    assert first is not None
    permits.release(first, CallEnd())
    second = asyncio.create_task(permits.acquire(800, 50, 60.0))
    await asyncio.sleep(0)
    (ask,) = gate.waiting(ROUTE)
    assert ask.charge == Charge(tokens_in=200, tokens_out=50)
    store.grant(ask)
    assert gate.room(ROUTE, clock.now_s()) == 0
    assert await second is not None
    assert gate.waiting(ROUTE) == []


async def test_a_call_that_gets_no_permit_in_time_is_not_made() -> None:
    """The attempt ends instead, and nothing waits any more."""
    gate, _store, clock, permits = granted()
    await permits.acquire(400, None, 60.0)
    assert await permits.acquire(400, None, 5.0) is None

    assert clock.now_s() >= 105.0
    assert gate.waiting_routes == set()


async def test_calls_that_ended_lately_are_counted_for_two_questions() -> None:
    """As many tasks as ended lately may soon begin."""
    gate, _store, _clock, permits = granted()
    permit = await permits.acquire(400, None, 60.0)
    assert permit is not None
    permits.release(permit, CallEnd())

    assert [gate.ended_lately()[ROUTE] for _ in range(3)] == [1, 1, 0]


def test_calls_are_reserved_before_a_claim() -> None:
    """A task without room is not claimed, and what a claimed one did not use is given back."""
    harness = SlotsHarness(routes(), ending(Succeeded(b"", 1, Spent())))
    clock = StepClock()
    harness.quotas = gate = quota_gate_of(CONFIG, clock)
    store = GrantingStore(gate, clock)
    admission = harness.admission(CrashSuspects())
    first, second, third = (claimed(number, harness.clock.now_s()) for number in range(3))
    store.grant(gate.first_call(first, ROUTE), gate.first_call(second, ROUTE))

    assert [admission.reserve_call(one) for one in (first, second, third)] == [True, True, False]
    harness.guards.replace([])
    assert isinstance(admission.decide(first), AttemptStart)
    assert admission.decide(third) is NotStarted.QUOTA
    admission.release_calls([first, second, third])
    store.grant()

    assert store.requests[-1].refund.requests == 1
    assert store.requests[-1].running == 1


async def test_nothing_is_kept_of_calls_without_limits() -> None:
    """Tasks name models, and so routes, of which there may be any number."""
    gate, _, clock = made(Config())
    permits = gate.reserve_first_call(task(clock), "some/model")
    assert permits is not None
    permit = await permits.acquire(400, None, 60.0)
    assert permit is not None
    permits.release(permit, CallEnd(reply=reply(), outcome=Succeeded(b"", 1, Spent("m", 90, 50))))

    assert gate.ended_lately() == {}
