"""The judge of exported metrics finds counters that fall, sums that lie, and calls not counted."""

from dataclasses import replace

import pytest

from docllm.schemas.task.states import Status
from tests.faults.exported import Exported, Key, Rows, Samples, Series, violations
from tests.faults.received_calls import ReceivedCall
from tests.faults.scrapes import samples
from tests.faults.site import EXPORTER
from tests.invariants.evidence import Call, Evidence, Task
from tests.invariants.happened import Claim, Move

ENDED = "docllm_tasks_ended_total"
LAST: Samples = {
    ("docllm_tasks_loaded_total", "g"): 2,
    (ENDED, "g", "succeeded"): 1,
    (ENDED, "g", "dead"): 1,
    ("docllm_tasks_dead_total", "BAD_REQUEST", "permanent", "g"): 1,
    ("docllm_attempts_total", "", "g", "succeeded", "default"): 1,
    ("docllm_attempts_total", "BAD_REQUEST", "g", "dead", "default"): 1,
    ("docllm_tokens_total", "in", "g", "default"): 30,
    ("docllm_tokens_total", "out", "g", "default"): 9,
    ("docllm_cost_units_total", "g", "succeeded", "default"): 0.000005,
}
ROWS = Rows(
    tasks=2,
    succeeded=1,
    attempts={("dead", "BAD_REQUEST"): 1, ("moved", "GUARD"): 3, ("cancelled", "CANCELLED"): 1},
    tokens={"in": 30, "out": 9, "cached": 0},
    cost_micro=5,
)


def call(name: str, start_s: float, status: int = 200, fault: str | None = None) -> ReceivedCall:
    answered = Call(
        name,
        start_s,
        start_s + 1,
        status,
        claim=Claim("03-agent", Status.PROCESSING, 1),
        tokens_in=30 if status == 200 else 0,
        tokens_out=9 if status == 200 else 0,
    )
    return ReceivedCall(answered, fault, "agent1")


def end(task_id: int, after: Status) -> Move:
    return Move(
        order=1.0,
        at_s=1.0,
        clock_s=1.0,
        task_id=task_id,
        before=Status.PROCESSING,
        after=after,
        old_owner=1,
        owner=0,
        old_fence=0,
        fence=0,
        old_due_s=0.0,
    )


RUN = Evidence(
    frozenset(),
    [Task(1, "b/1", Status.SUCCEEDED), Task(2, "b/2", Status.DEAD)],
    moves=[end(1, Status.SUCCEEDED), end(2, Status.DEAD)],
)
CALLS = [call("b/1", 5.0), call("b/2", 6.0, 400, "400")]


def shown(*values: float, key: Key = (ENDED, "g", "dead")) -> Series:
    series = Series()
    for at_s, value in enumerate(values):
        series.add(float(at_s), {key: value})
    return series


def judged(last: Samples = LAST, rows: Rows = ROWS, **series: Series) -> list[str]:
    return violations(Exported(series, last, rows), RUN, CALLS)


def judged_of(series: dict[str, Series]) -> list[str]:
    """Judge these series of programs by their names."""
    return violations(Exported(series, LAST, ROWS), RUN, CALLS)


def test_what_is_exported_may_be_what_happened() -> None:
    """Moves without an attempt, and cancelled attempts, are no attempts; they may have cost."""
    assert judged(exporter=shown(1, 1, 2, 5)) == []


def test_a_counter_that_falls_is_found_in_whatever_source() -> None:
    """The exporter is one source however often it is killed; each agent is one for itself."""
    assert "fell from 2 to 1" in judged(exporter=shown(1, 2, 1, 3))[0]
    assert judged(agent1=shown(9), agent2=shown(1)) == []


@pytest.mark.parametrize(("key", "value"), [(key, value + 1) for key, value in LAST.items()])
def test_each_sum_that_is_not_that_of_the_rows_is_found(key: Key, value: float) -> None:
    """One more or less of anything is a lie."""
    assert judged({**LAST, key: value})
    assert judged({**LAST, key: 0})


def test_a_series_that_is_missing_at_the_end_is_found() -> None:
    """Nothing is as wrong as a wrong number."""
    for key in LAST:
        assert judged({name: value for name, value in LAST.items() if name != key})
    assert "no reading" in judged({})[0]


def test_tokens_that_the_provider_never_gave_are_found() -> None:
    """Rows and metrics may agree and both be wrong: the LLM kept its own account."""
    twice = {key: value * 2 if "tokens" in key[0] else value for key, value in LAST.items()}
    (line, _) = judged(twice, replace(ROWS, tokens={"in": 60, "out": 18}))
    assert "at least 30 and at most 30" in line
    lost = {key: value / 3 if "tokens" in key[0] else value for key, value in LAST.items()}
    assert judged(lost, replace(ROWS, tokens={"in": 10, "out": 3}))


def test_a_paid_call_that_was_lost_with_its_agent_is_no_lie() -> None:
    """The LLM has answered twice; only the second answer was settled."""
    calls = [call("b/1", 1.0), *CALLS]
    assert violations(Exported({}, LAST, ROWS), RUN, calls) == []


def test_an_agent_that_forgets_calls_is_found() -> None:
    """Calls that ended long before the last scrape must be counted; each start counts anew."""
    name = "docllm_call_duration_seconds_count"
    series = shown(0, 1, key=(name, "default"))
    series.scrapes_s.append(90.0)
    assert "had made 2 of them" in judged_of({"03-agent#1": series})[0]
    series.add(91.0, {(name, "default"): 2})
    again = Series()
    again.add(92.0, {(name, "default"): 0})
    again.add(200.0, {(name, "default"): 0})
    assert judged_of({"03-agent#1": series, "03-agent#2": again}) == []


def test_a_page_is_read_by_names_and_labels() -> None:
    """Of a histogram only the count is kept; gauges may fall, and other programs' metrics too."""
    page = """# TYPE docllm_x_total counter
docllm_x_total{group="g",class="A"} 3.0
# TYPE docllm_y histogram
docllm_y_bucket{le="1.0"} 1.0
docllm_y_bucket{le="+Inf"} 2.0
docllm_y_count 2.0
docllm_y_sum 3.0
# TYPE docllm_z gauge
docllm_z 4.0
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 5.0
"""
    assert samples(page, counted=True) == {("docllm_x_total", "A", "g"): 3, ("docllm_y_count",): 2}
    assert ("docllm_z",) in samples(page)
    assert EXPORTER == "exporter"
