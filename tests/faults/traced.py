"""The seventh account of a run: the traces that a collector got, against the rows of attempts.

Each failed attempt must have its span in the trace of its task, unless its agent was killed before
it could tell. Each record of a task names a span of its task's trace.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from docllm.schemas.task.failures import UNTRIED, AttemptOutcome
from docllm.schemas.task.owner import agent_of
from docllm.schemas.task.record.trace import attempt_span, span_of, trace_of
from tests.faults.lives import Life
from tests.integration.support.programs import Program
from tests.servers.collector import Collector

# Spans wait for a second for others, and frozen agents for longer.
TOLD_S = 60.0
COUNTED = {AttemptOutcome.RETRY, AttemptOutcome.DEAD}
_DROPPED = ("takes no spans", "spans were not sent")


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt that a living agent settled as a failure; `settled_s` is the database's time."""

    task_id: int
    owner: int
    settled_s: float
    is_counted: bool


@dataclass(frozen=True, slots=True)
class Traced:
    """What is known of the traces of a run.

    `spans` are those of attempts, by trace and id in hexadecimal, `records` the task and the
    `traceparent` of each record. `silent` are programs that said that they dropped spans.
    """

    ledger: str
    spans: Collection[tuple[str, str]]
    records: Sequence[tuple[int, str]]
    attempts: Sequence[FailedAttempt]
    silent: Collection[str]


def seen(collector: Collector) -> set[tuple[str, str]]:
    """Return the spans of attempts that a collector got."""
    return {(span.trace, span.id) for span in collector.spans("process")}


def silent(programs: Iterable[Program]) -> set[str]:
    """Return the programs that dropped spans, by their own words."""
    return {program.name for program in programs if any(map(program.err.__contains__, _DROPPED))}


def failed(attempts: Iterable[tuple[int, int, str, str, float]]) -> list[FailedAttempt]:
    """Return the attempts of rows: task, owner, outcome, class of error, and settle."""
    return [
        FailedAttempt(task_id, owner, settled_s, outcome in COUNTED)
        for task_id, owner, outcome, error_class, settled_s in attempts
        if owner and error_class not in UNTRIED
    ]


def violations(traced: Traced, agents: Mapping[int, Life]) -> Iterator[str]:
    """Yield a line for each attempt that is missing, and each record of another trace."""
    for attempt in _due(traced, agents):
        trace = trace_of(traced.ledger, attempt.task_id).hex()
        span = attempt_span(attempt.task_id, attempt.owner).hex()
        if (trace, span) not in traced.spans:
            yield (
                f"TRACES task {attempt.task_id}: the attempt of {attempt.owner}, settled at "
                f"{attempt.settled_s:.1f}, is missing in trace {trace}"
            )
    for task_id, traceparent in traced.records:
        named = span_of(traceparent)
        if named is None or named.trace != trace_of(traced.ledger, task_id):
            yield f"TRACES a record of task {task_id} names {traceparent or 'no span'}"


def checked(traced: Traced, agents: Mapping[int, Life]) -> int:
    """Return how many attempts must be in their traces."""
    return sum(1 for _ in _due(traced, agents))


def _due(traced: Traced, agents: Mapping[int, Life]) -> Iterator[FailedAttempt]:
    for attempt in traced.attempts:
        life = agents.get(agent_of(attempt.owner))
        if attempt.is_counted and life is not None and life.program not in traced.silent:
            was_cut_short = life.code != 0 and life.ended_s < attempt.settled_s + TOLD_S
            if not was_cut_short:
                yield attempt
