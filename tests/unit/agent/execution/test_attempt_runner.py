"""One attempt, from the claimed record to its outcome."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from docllm.agent.execution.admission import Admission
from docllm.agent.execution.attempt_routes import AttemptRoutes
from docllm.agent.execution.attempt_runner import AttemptRunner, StateOf, no_state
from docllm.agent.execution.lock_requests import ResourceLocks
from docllm.agent.execution.output_writer import Outputs
from docllm.agent.execution.start_decisions import AttemptStart
from docllm.agent.handlers import HandlerRun, Handlers, LockError
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.ports import Partition, Row
from docllm.agent.ports.lock_table import LockTable
from docllm.agent.ports.outcome import (
    Dead,
    HandlerState,
    Outcome,
    Released,
    Spent,
    Succeeded,
    unseen,
)
from docllm.agent.routes import RouteCall
from docllm.schemas.objects.write_once import WriteOnceStore
from docllm.schemas.settings.claim_time import SETTLE_MARGIN_S
from docllm.schemas.settings.config import Config
from docllm.schemas.task.record.envelope import Publication
from docllm.schemas.task.result.codec import COMPLETION
from tests.support.doubles import stand_in
from tests.support.ledger import new_row
from tests.support.slots import quota_gate_of

GOOD = Succeeded(b"answer", COMPLETION, Spent())
CALLED = Spent(tokens_in=5, calls=1)
DEADLINE_S = 660.0


@dataclass
class FakeHandlers:
    attempts: list[HandlerRun] = field(default_factory=list)
    again: bool = True

    def runs_again(self, _task_type: str) -> bool:
        return self.again

    def plain_plan(self, _task_type: str, _route: str) -> None:
        """Let no task be plain."""

    def may_come_back(self, task_type: str) -> bool:
        return task_type == "polls"

    async def run(self, attempt: HandlerRun) -> Outcome:
        self.attempts.append(attempt)
        attempt.note_spent(CALLED)
        return GOOD


@dataclass
class StillClock:
    at_s: float = 1000.0

    def now_s(self) -> float:
        return self.at_s

    def utc_s(self) -> float:
        raise AssertionError("no date is asked for")

    async def sleep(self, delay_s: float) -> None:
        raise AssertionError("nothing here waits")


def claimed(**changes: Any) -> Delivery:
    row = new_row(status=1, owner=9, fence=2, counted_before=2, max_attempts=4, batch="b")
    given: dict[str, Any] = {
        "partition": Partition("g.tasks", "id", 0, 1),
        "offset": 5,
        "timestamp_ms": 0,
        "publication": Publication(ledger="ledger", group="g", batch="b", task_id=7, fence=2),
        "value": b"{}",
        "digest": None,
        "route": "default",
        "snoozes": 3,
        "row": row,
        "claimed_at_s": 1000.0,
    }
    return Delivery(**(given | changes))


def worked(
    delivery: Delivery,
    at_s: float = 1000.0,
    *,
    handlers: FakeHandlers | None = None,
    state_of: StateOf = no_state,
) -> tuple[Outcome, list[HandlerRun]]:
    handlers = handlers or FakeHandlers()
    runner = AttemptRunner(
        handlers=stand_in(Handlers, handlers),
        locks=ResourceLocks(table=cast("LockTable", None), clock=StillClock(at_s)),
        outputs=Outputs(store=cast("WriteOnceStore", None), allow=(), clock=StillClock(at_s)),
        clock=StillClock(at_s),
        claim_s=DEADLINE_S,
        state_of=state_of,
    )
    permits = quota_gate_of(Config(), StillClock(at_s)).reserve_first_call(delivery, delivery.route)
    assert permits is not None
    start = AttemptStart(RouteCall(delivery.route, 0, at_s, 2.5), permits, refused_alone=True)
    admission = cast("Admission", None)
    routes = AttemptRoutes(admission=admission, delivery=delivery, start=start)
    return asyncio.run(runner.run(delivery, start, routes)), handlers.attempts


@pytest.mark.parametrize(
    ("kind", "fence", "asked"), [("polls", 2, [7]), ("polls", 0, []), ("document", 2, [])]
)
def test_what_a_handler_kept_is_read_only_where_there_may_be_something(
    kind: str, fence: int, asked: list[int]
) -> None:
    """A come-back raises the fence, and only handlers of one's own come back."""
    delivery, handlers, read = claimed(), FakeHandlers(), list[int]()
    assert delivery.row is not None
    delivery.row.type, delivery.row.fence = kind, fence

    async def state_of(task_id: int) -> HandlerState:
        read.append(task_id)
        return HandlerState(b'{"a":1}', 2)

    _, (run,) = worked(delivery, handlers=handlers, state_of=state_of)

    assert read == asked
    assert run.state == (HandlerState(b'{"a":1}', 2) if asked else None)


def test_an_attempt_has_the_budget_of_its_row() -> None:
    """Counted attempts and their maximum come from the row; snoozes are this agent's count."""
    outcome, (attempt,) = worked(claimed())

    assert outcome is GOOD
    assert (attempt.counted_before, attempt.max_attempts, attempt.snoozes) == (2, 4, 3)
    assert (attempt.task_id, attempt.batch, attempt.value) == (7, "b", b"{}")
    assert (attempt.route, attempt.limit_s, attempt.refused_alone) == ("default", 2.5, True)


@pytest.mark.parametrize("waited_s", [0.0, 100.0])
def test_an_attempt_leaves_time_for_its_settle(waited_s: float) -> None:
    """An attempt may use the claim's remaining time, less a margin for the settle."""
    _, (attempt,) = worked(claimed(), 1000.0 + waited_s)

    assert attempt.left_s == DEADLINE_S - SETTLE_MARGIN_S - waited_s


def test_an_expired_claim_is_released() -> None:
    """A claim that has run out is given back, because nothing could be settled in time."""
    outcome, attempts = worked(claimed(), 1000.0 + DEADLINE_S - SETTLE_MARGIN_S)

    assert isinstance(outcome, Released)
    assert attempts == []


def test_a_task_without_input_is_dead() -> None:
    """A task whose body the ledger has lost is dead."""
    outcome, attempts = worked(claimed(value=None))

    assert isinstance(outcome, Dead)
    assert outcome.failure.error_class == "NO_INPUT"
    assert attempts == []


def test_the_locks_of_an_attempt_end_with_it() -> None:
    """A handler that keeps a lock, or goes on in a thread of its own, takes none any more."""
    _, (attempt,) = worked(claimed())

    with pytest.raises(LockError, match="the attempt has ended"):
        attempt.locks.ask("account")


def test_an_answer_is_written_within_its_claim() -> None:
    """A write that outlasts it would let another agent pay for the answer again."""
    until: list[float] = []

    class FakeOutputs:
        async def write(
            self, answer: Succeeded, _row: Row, *, owner: int, until_s: float
        ) -> Outcome:
            until.append(until_s)
            return answer

    runner = AttemptRunner(
        handlers=stand_in(Handlers, FakeHandlers()),
        locks=ResourceLocks(table=cast("LockTable", None), clock=StillClock()),
        outputs=stand_in(Outputs, FakeOutputs()),
        clock=StillClock(),
        claim_s=DEADLINE_S,
    )
    delivery = claimed()
    assert delivery.row is not None

    assert asyncio.run(runner.write(delivery, delivery.row, GOOD)) is GOOD
    assert until == [delivery.claimed_at_s + DEADLINE_S - 5]


@pytest.mark.parametrize("again", [True, False])
def test_an_answer_that_could_not_be_written_before_the_end(*, again: bool) -> None:
    """Its task runs again, unless it must not run twice."""

    class EndedOutputs:
        async def write(self, *_: object, **__: object) -> Outcome:
            raise asyncio.CancelledError

    runner = AttemptRunner(
        handlers=stand_in(Handlers, FakeHandlers(again=again)),
        locks=ResourceLocks(table=cast("LockTable", None), clock=StillClock()),
        outputs=stand_in(Outputs, EndedOutputs()),
        clock=StillClock(),
        claim_s=DEADLINE_S,
    )
    delivery = claimed()
    assert delivery.row is not None
    write = runner.write(delivery, delivery.row, GOOD)

    if again:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(write)
    else:
        assert asyncio.run(write) == unseen(
            "its agent stopped before the answer was written", GOOD.spent
        )
