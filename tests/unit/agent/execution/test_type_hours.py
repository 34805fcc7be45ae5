"""Hours and limits of a type: its tasks wait, and those of other types do not."""

import pytest

from docllm.agent.execution.crash_suspects import CrashSuspects
from docllm.agent.execution.start_decisions import AttemptStart, NotStarted
from docllm.agent.execution.type_hours import LATER_S, TypeHours
from docllm.agent.inflight.delivery import DeliveryState
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.ports.outcome import Moved
from docllm.agent.quota.estimate import CallSize
from docllm.agent.quota.grants import QuotaAnswer
from docllm.schemas.agent_report import Reason
from docllm.schemas.codes import Code
from docllm.schemas.settings.config import Config, TypeConfig
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.waits import WaitReason
from tests.support.clock import HandClock
from tests.support.routes import GOOD, routes
from tests.support.slots import SlotsHarness, claimed, ending, quota_gate_of, started

HOUR_S = 3600.0
NIGHT = {"document": TypeConfig(schedule="22:00-06:00 UTC"), "scan": TypeConfig(slots=2)}


def hours(clock: HandClock) -> TypeHours:
    return TypeHours(types=NIGHT, clock=clock)


# ---- hours


@pytest.mark.parametrize(
    ("at_h", "wait_s"), [(21.995, 18.0), (21.95, 180.0), (20.0, 7200.0), (6.0, 57_600.0)]
)
def test_a_task_waits_until_the_hours_of_its_type(at_h: float, wait_s: float) -> None:
    """The task waits until they begin, and comes soon after."""
    clock = HandClock()
    clock.at_s = at_h * HOUR_S
    moved = [hours(clock).move_until_hours("document", task_id) for task_id in (997, 996)]

    assert {(outcome.reason, outcome.key) for outcome in moved} == {(WaitReason.HOURS, "document")}
    assert moved[0].delay_s == pytest.approx(wait_s)
    assert wait_s < moved[1].delay_s <= wait_s + LATER_S
    assert moved[0].failure.error_class == ErrorClass.SCHEDULE
    assert moved[0].failure.text == "type document runs 22:00-06:00 UTC"


def test_the_report_names_a_type_while_a_task_of_it_waits() -> None:
    """A type is shown once a task of it was met, and until its hours begin."""
    clock = HandClock()
    clock.at_s = 21 * HOUR_S
    types = hours(clock)

    assert types.reasons() == []
    assert not types.is_awake("document")
    assert types.is_awake("other")
    assert types.reasons() == [
        Reason(Code.TYPE_ASLEEP, "document", text="22:00-06:00 UTC", seconds=HOUR_S)
    ]
    clock.at_s += HOUR_S
    assert types.reasons() == []
    assert types.is_awake("document")


def test_what_must_not_run_twice_is_not_claimed_ahead() -> None:
    """If its agent were lost, nobody would know that it had not begun."""
    harness = limited(document=TypeConfig(on_loss="dead"), letter=TypeConfig())
    admission = harness.admission(CrashSuspects())
    delivery = claimed(1, harness.clock.now_s())

    assert not admission.needs_only_slot(delivery)
    assert isinstance(admission.decide(delivery), AttemptStart)
    assert harness.hours.plain >= {"letter"}


def test_no_call_is_made_outside_of_the_hours() -> None:
    """The claimed task is put off, uncounted, and its record is finished by the settle."""
    harness = SlotsHarness(routes(), ending(GOOD))
    hour = int(harness.clock.utc_s() // HOUR_S) % 24
    begins, ends = (hour + 2) % 24, (hour + 3) % 24
    harness.hours.apply({"document": TypeConfig(schedule=f"{begins:02}:00-{ends:02}:00 UTC")})
    harness.guards.replace([])

    (outcome,) = started(harness, claimed(1, harness.clock.now_s()))

    assert isinstance(outcome, Moved)
    assert (outcome.reason, outcome.failure.error_class) == (WaitReason.HOURS, ErrorClass.SCHEDULE)
    assert harness.counts.attempts == 0


# ---- limits


def limited(**types: TypeConfig) -> SlotsHarness:
    """Return slots over fakes with these types."""
    harness = SlotsHarness(routes(), ending(GOOD))
    harness.hours.apply(types)
    harness.quotas = quota_gate_of(Config(types=types), harness.clock)
    harness.guards.replace([])
    return harness


def test_no_more_tasks_of_a_type_are_admitted_than_it_has_slots() -> None:
    """A task that was taken for a claim counts, until it is given back or has ended."""
    harness = limited(document=TypeConfig(slots=2))
    admission = harness.admission(CrashSuspects())
    first, second, third = (claimed(number, harness.clock.now_s()) for number in range(3))

    assert [admission.reserve_call(delivery) for delivery in (first, second, third)] == [
        True,
        True,
        False,
    ]
    assert admission.decide(third) is NotStarted.TYPE
    assert isinstance(admission.decide(first), AttemptStart)
    admission.enter(first)
    first.state = DeliveryState.RUNNING
    admission.release_calls([first, second])
    assert admission.reserve_call(third)
    admission.enter(third)
    third.state = DeliveryState.RUNNING
    admission.release_calls([third])
    assert not admission.reserve_call(second)
    admission.leave(first)
    assert admission.reserve_call(second)


def test_a_type_that_is_known_late_counts_from_then_on() -> None:
    """A record without a body does not show its type before the claim."""
    harness = limited(scan=TypeConfig(slots=1))
    admission = harness.admission(CrashSuspects())
    late = claimed(1, harness.clock.now_s(), type_name="scan")
    other = claimed(2, harness.clock.now_s(), type_name="scan")
    row, late.row, late.size = late.row, None, CallSize(task_type="document")
    assert admission.reserve_call(late)
    late.row = row

    harness.unknown_types.knows = lambda _name: True
    assert isinstance(admission.decide(late), AttemptStart)
    admission.enter(late)

    assert not admission.reserve_call(other)
    admission.leave(late)
    assert admission.reserve_call(other)


def test_a_task_whose_type_turns_out_to_be_without_limits_gives_its_slot_back() -> None:
    """The claim shows the type of a task that was counted for another one."""
    harness = limited(scan=TypeConfig(slots=1))
    admission = harness.admission(CrashSuspects())
    late, other = claimed(1, harness.clock.now_s()), claimed(2, 0.0, type_name="scan")
    row, late.row, late.size = late.row, None, CallSize(task_type="scan")
    assert admission.reserve_call(late)

    late.row = row
    assert isinstance(admission.decide(late), AttemptStart)

    assert admission.reserve_call(other)


def test_other_types_pass_the_tasks_of_a_full_one() -> None:
    """A tenant's tasks of a type with slots wait in a line apart, in their order."""
    admission = limited(scan=TypeConfig(slots=2)).admission(CrashSuspects())
    table = InFlightTable(limits=InFlightLimits(), has_own_queue=lambda name: name == "scan")
    scans = [claimed(number, 0.0, type_name="scan") for number in range(50)]
    notes = [claimed(number, 0.0) for number in range(100, 105)]
    for delivery in (*scans, *notes):
        table.add(delivery, 0.0, redelivered=False)

    taken = table.take_ready(20, lambda _route: 20, admission.reserve_call)

    assert [each.task_id for each in taken if each.task_type == "scan"] == [0, 1]
    assert [each.task_id for each in taken if each.task_type != "scan"] == [*range(100, 105)]
    assert table.take_ready(20, lambda _route: 20, admission.reserve_call) == []
    admission.release_calls(scans[:1])
    (following,) = table.take_ready(20, lambda _route: 20, admission.reserve_call)
    assert following.task_id == 2


def grant(harness: SlotsHarness, task_type: str, uses: int, seats: int | None = None) -> None:
    """Let the store grant so many attempts at tasks of a type."""
    quotas, now_s = harness.quotas.quotas, harness.clock.now_s()
    asks = [harness.quotas.first_call(claimed(1, now_s, type_name=task_type), "any")] * uses
    quotas.set_waiting("any", [], now_s, later=asks)
    (member,) = quotas.with_news(now_s)
    answer = QuotaAnswer(
        granted=(True,) * uses, seats=seats, paused_s=0.0, accepted_share=1.0, agents=1, binding=""
    )
    member.apply_answer(member.next_request(now_s), answer, now_s, now_s)


def test_a_shared_limit_of_a_type_holds_for_attempts() -> None:
    """An attempt counts from its reservation to its end, whatever calls it makes."""
    harness = limited(document=TypeConfig(in_flight=1))
    admission = harness.admission(CrashSuspects())
    first, second = (claimed(number, harness.clock.now_s()) for number in range(2))
    assert not admission.reserve_call(first)
    grant(harness, "document", 1, seats=1)

    assert [admission.reserve_call(delivery) for delivery in (first, second)] == [True, False]
    start = admission.decide(first)
    assert isinstance(start, AttemptStart)
    admission.enter(first)
    admission.end(start, GOOD)
    assert admission.decide(second) is NotStarted.TYPE
    admission.leave(first)

    assert admission.reserve_call(second)


@pytest.mark.parametrize(("runs", "refunded"), [(True, 0), (False, 1)])
def test_only_attempts_that_begin_count_for_the_rate_of_a_type(runs: bool, refunded: int) -> None:  # noqa: FBT001
    """A task that is moved, or whose claim another agent got, used nothing."""
    harness = limited(document=TypeConfig(rpm=60))
    admission = harness.admission(CrashSuspects())
    delivery = claimed(1, harness.clock.now_s())
    grant(harness, "document", 1)
    assert admission.reserve_call(delivery)

    if runs:
        assert isinstance(admission.decide(delivery), AttemptStart)
        admission.enter(delivery)
        admission.leave(delivery)
    else:
        admission.release_calls([delivery])

    (member,) = harness.quotas.quotas.with_news(harness.clock.now_s())
    assert member.next_request(harness.clock.now_s()).refund.requests == refunded
