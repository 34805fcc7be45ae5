"""The sixth account of a run: what the exporter and the agents showed, against rows and calls.

A counter must never fall as long as its source lives. The exporter's source is the ledger, so its
counters may not fall over a whole run, whatever is killed, replayed or rolled up. At the end they
must equal the ledger's rows, and lie between what the LLM says that it answered and what of it was
settled.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter

from docllm.schemas.task.failures import UNTRIED
from docllm.schemas.task.states import FINAL, Status
from tests.faults.received_calls import ReceivedCall
from tests.faults.site import EXPORTER
from tests.invariants.counted import Query
from tests.invariants.evidence import Evidence
from tests.invariants.happened import Move

# After this time a call has ended in its agent, even if that was frozen below its lease meanwhile,
# and was answered late.
CALL_OVER_S = 60.0
OK = 200
OUTCOMES = {
    "retry": "retried",
    "moved": "retried",
    "snooze": "snoozed",
    "released": "snoozed",
    "dead": "dead",
}

START = "#"  # between the name of an agent and the number of its start, in the name of a source
Key = tuple[str, ...]  # the name, and the values of the labels in the order of their names
Samples = Mapping[Key, float]


@dataclass(slots=True)
class Series:
    """What one source showed: each counter's values, each with the time of its first showing."""

    points: dict[Key, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    scrapes_s: list[float] = field(default_factory=list)

    def add(self, at_s: float, shown: Samples) -> None:
        """Add a scrape."""
        self.scrapes_s.append(at_s)
        for key, value in shown.items():
            points = self.points[key]
            if not points or points[-1][1] != value:
                points.append((at_s, value))


@dataclass(frozen=True, slots=True)
class Rows:
    """What the ledger's rows add up to.

    `attempts` counts those that did not succeed, by outcome and class of error, and `succeeded`
    the results. `tokens` is by direction.
    """

    tasks: int
    succeeded: int
    attempts: Mapping[tuple[str, str], int]
    tokens: Mapping[str, int]
    cost_micro: int


@dataclass(frozen=True, slots=True)
class Exported:
    """What was exported: series by source, the exporter's last page, and the rows at its time."""

    series: Mapping[str, Series]
    last: Samples
    rows: Rows


def rows(query: Query) -> Rows:
    """Return what the rows add up to that are behind exported metrics."""
    sums = "SUM(tokens_in), SUM(tokens_cached), SUM(tokens_out), SUM(cost_micro)"
    by_end = f"SELECT outcome, error_class, COUNT(*), {sums} FROM task_attempt GROUP BY 1, 2"  # noqa: S608
    of_results = f"SELECT 'result', '', COUNT(*), {sums} FROM task_result"  # noqa: S608 - constants
    *attempts, results = [*query(by_end), *query(of_results)]
    ((tasks,),) = query("SELECT COUNT(*) FROM task")
    tokens_in, cached, tokens_out, cost_micro = (
        sum(int(row[place] or 0) for row in (*attempts, results)) for place in range(3, 7)
    )
    return Rows(
        tasks=tasks,
        succeeded=results[2],
        attempts={(row[0], row[1]): row[2] for row in attempts},
        tokens={"in": tokens_in, "cached": cached, "out": tokens_out},
        cost_micro=cost_micro,
    )


def violations(exported: Exported, run: Evidence, received: Sequence[ReceivedCall]) -> list[str]:
    """Return a line for each counter that fell or does not say what happened."""
    if not exported.last:
        return ["METRICS the exporter made no reading after the end"]
    wrong = (
        *fallen(exported.series),
        *unequal(exported.last, exported.rows, run.moves),
        *_beside_the_calls(exported.last, run, received),
        *_calls_unseen(exported.series, received),
    )
    return [f"METRICS {line}" for line in wrong]


def fallen(series: Mapping[str, Series]) -> Iterator[str]:
    """Yield each fall of a counter."""
    for source, of_source in series.items():
        for key, points in of_source.points.items():
            for (_, before), (at_s, after) in pairwise(points):
                if after < before:
                    yield f"{key} of {source} fell from {before:g} to {after:g} at {at_s:.1f}"


def unequal(last: Samples, rows: Rows, moves: Sequence[Move] | None = None) -> Iterator[str]:
    """Yield each sum that is not that of the rows, or of their history if that is known."""
    dead: Counter[str] = Counter()
    attempts: Counter[tuple[str, str]] = Counter(
        {("succeeded", ""): rows.succeeded} if rows.succeeded else {}
    )
    for (outcome, error_class), count in rows.attempts.items():
        if outcome == "dead":
            dead[error_class] += count
        if outcome in OUTCOMES and error_class not in UNTRIED:
            attempts[OUTCOMES[outcome], error_class] += count
    expected: dict[str, tuple[Mapping[Key, float], Mapping[Key, float]]] = {
        "loaded": (_by(last, "docllm_tasks_loaded_total"), {(): rows.tasks}),
        "attempts": (
            _by(last, "docllm_attempts_total", 2, 0),
            {(outcome, name): count for (outcome, name), count in attempts.items()},
        ),
        "dead": (
            _by(last, "docllm_tasks_dead_total", 0),
            {(name,): count for name, count in dead.items()},
        ),
        "tokens": (
            _by(last, "docllm_tokens_total", 0),
            {(name,): count for name, count in rows.tokens.items()},
        ),
        "cost in millionths": (
            {(): round(1e6 * sum(_by(last, "docllm_cost_units_total").values()))},
            {(): rows.cost_micro},
        ),
    }
    if moves is not None:
        expected["ended"] = (_by(last, "docllm_tasks_ended_total", 1), _ends(moves))
        expected["replayed"] = (_by(last, "docllm_tasks_replayed_total"), {(): _replays(moves)})
    for what, (shown, true) in expected.items():
        for key in sorted({*shown, *true}):
            if shown.get(key, 0) != true.get(key, 0):
                yield (
                    f"{what} {'/'.join(key)}: {shown.get(key, 0):g} are exported, and the rows say "
                    f"{true.get(key, 0):g}"
                )


def _by(last: Samples, name: str, *labels: int) -> dict[Key, float]:
    """Return the sums of a metric by some of its labels, given by their places."""
    sums: dict[Key, float] = defaultdict(float)
    for (named, *values), value in last.items():
        if named == name and value:
            sums[tuple(values[place] for place in labels)] += value
    return dict(sums)


def _ends(moves: Iterable[Move]) -> dict[Key, float]:
    ended = Counter(
        move.after for move in moves if move.after in FINAL and move.before not in FINAL
    )
    return {(status.name.lower(),): count for status, count in ended.items()}


def _replays(moves: Iterable[Move]) -> int:
    return sum(move.before in FINAL and move.after not in FINAL for move in moves)


def _beside_the_calls(
    last: Samples, run: Evidence, received: Sequence[ReceivedCall]
) -> Iterator[str]:
    """Yield what cannot be, by the LLM's own log.

    All that was settled was answered. The last good answer of a task that succeeded was settled;
    earlier ones may have been lost with their agents.
    """
    succeeded = {task.name for task in run.tasks if task.status == Status.SUCCEEDED}
    calls = [call.call for call in received]
    settled = {
        each.call.name: each.call
        for each in received
        if each.call.status == OK and each.fault is None and each.call.name in succeeded
    }.values()
    # The LLM was killed in the middle of these, so its log does not say what they cost.
    open_calls = sum(not call.status and not call.tokens_in for call in calls)
    sums = _by(last, "docllm_tokens_total", 0)
    for direction in ("in", "out"):
        shown = sums.get((direction,), 0.0)
        tokens = attrgetter(f"tokens_{direction}")
        least = sum(map(tokens, settled))
        most = sum(map(tokens, calls)) + open_calls * max(map(tokens, calls), default=0)
        if not least <= shown <= most:
            yield (
                f"tokens {direction}: {shown:g} are exported, and by the LLM's log they are at "
                f"least {least} and at most {most}"
            )


def _calls_unseen(series: Mapping[str, Series], received: Sequence[ReceivedCall]) -> Iterator[str]:
    """Yield each agent whose last page knows fewer calls than it had long ended by then."""
    made: dict[str, list[float]] = defaultdict(list)
    for each in received:
        if each.call.claim is not None:
            made[each.call.claim.program].append(each.call.start_s)
    for source, of_source in series.items():
        if source == EXPORTER or not of_source.scrapes_s:
            continue
        first_s, last_s = of_source.scrapes_s[0], of_source.scrapes_s[-1]
        program = source.partition(START)[0]
        old = sum(first_s < start_s < last_s - CALL_OVER_S for start_s in made[program])
        known = sum(
            points[-1][1] - (points[0][1] if points[0][0] == first_s else 0)
            for key, points in of_source.points.items()
            if key[0] == "docllm_call_duration_seconds_count"
        )
        if known < old:
            yield (
                f"{source} counted {known:g} calls from {first_s:.1f} to {last_s:.1f}, and had "
                f"made {old} of them {CALL_OVER_S:g} s before"
            )
