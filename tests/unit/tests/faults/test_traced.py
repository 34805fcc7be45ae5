"""The judge of traces finds attempts that nobody told of, and records of other traces."""

from dataclasses import replace

from docllm.schemas.task.owner import owner_of
from docllm.schemas.task.record.trace import SpanId, attempt_span, trace_of
from tests.faults.lives import Life
from tests.faults.traced import FailedAttempt, Traced, checked, failed, violations

OWNER = owner_of(5, 0)
AGENTS = {5: Life(program="03-agent", pid=4711, seat="agent1", began_s=0.0, ended_s=500.0, code=0)}
TRACE, SPAN = trace_of("ledger", 7), attempt_span(7, OWNER)
GOOD = Traced(
    ledger="ledger",
    spans={(TRACE.hex(), SPAN.hex())},
    records=[(7, SpanId(TRACE, b"sentsent").traceparent)],
    attempts=[FailedAttempt(7, OWNER, 100.0, is_counted=True)],
    silent=(),
)


def test_a_whole_trace_is_good() -> None:
    """The attempt of a task was told of, and the task's record names it."""
    assert list(violations(GOOD, AGENTS)) == []
    assert checked(GOOD, AGENTS) == 1


def test_an_attempt_that_nobody_told_of_is_found() -> None:
    """An attempt is also missed if it was told of in another trace, or with another id."""
    for spans in (set(), {(TRACE.hex(), "00" * 8)}, {(trace_of("ledger", 8).hex(), SPAN.hex())}):
        (line,) = violations(replace(GOOD, spans=spans), AGENTS)
        assert line.startswith("TRACES task 7: the attempt of")


def test_only_an_agent_that_was_killed_soon_need_not_tell() -> None:
    """An agent that ends by itself sends what waits."""
    quiet = replace(GOOD, spans=set())
    (life,) = AGENTS.values()
    killed = {5: replace(life, code=-9, ended_s=110.0)}
    assert list(violations(quiet, killed)) == []
    assert len([*violations(quiet, {5: replace(life, code=-9, ended_s=400.0)})]) == 1
    assert len([*violations(quiet, {5: replace(life, ended_s=110.0)})]) == 1
    assert list(violations(replace(quiet, silent={"03-agent"}), AGENTS)) == []


def test_a_record_of_another_trace_is_found() -> None:
    """A record that names no span is found too."""
    foreign = SpanId(trace_of("ledger", 8), b"sentsent").traceparent
    lines = violations(replace(GOOD, records=[(7, foreign), (7, "")]), AGENTS)
    assert len([*lines]) == 2


def test_only_ends_that_count_are_due() -> None:
    """A snooze is told of by its share, and what a reaper wrote has no owner."""
    rows = [
        (7, OWNER, "retry", "SERVER", 1.0),
        (7, OWNER, "snooze", "RATE", 1.0),
        (7, 0, "dead", "WORKER_LOST", 1.0),
        (7, OWNER, "moved", "ROUTE", 1.0),
    ]
    assert [attempt.is_counted for attempt in failed(rows)] == [True, False]
