"""The judge of fault runs: violations, and the run's figures."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from docllm.schemas.task.owner import agent_of
from docllm.schemas.task.states import Status
from tests.faults import causes, exported, limits, traced
from tests.faults.faultlog import Event
from tests.faults.lives import Life
from tests.faults.run_evidence import RunEvidence
from tests.faults.site import LIMITS
from tests.invariants import promises
from tests.invariants.happened import Move

AWAY_S = 90.0  # a program may end with 3 for this long after a server was away
FINE = {0, -9, -15}
UNREACHABLE = 3
# Within this time another event may have delayed the take-over of a killed agent's tasks.
NEAR_S = 30.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of judging a run.

    `violations` are broken promises, one line each. `void` are faults that met nobody. `figures`
    are the published ones.
    """

    violations: Sequence[str]
    void: Sequence[str]
    figures: Mapping[str, Any]

    @property
    def good(self) -> bool:
        """Return whether the run proves something."""
        return not self.violations and not self.void


def judge(evidence: RunEvidence, *, figures: Mapping[str, Any]) -> Judgement:
    """Judge a run; `figures` are those that the caller knows."""
    repeated = causes.repeats(evidence)
    unexplained = [
        f"P4 repeated without a cause: {repeat}"
        for repeat in repeated
        if repeat.cause == causes.UNEXPLAINED
    ]
    broken = [
        *promises.violations(evidence.run),
        *unexplained,
        *(limits.violations(evidence.received, evidence.faults) if evidence.limited else ()),
        *_ended_wrong(evidence),
        *(f"P9 {line}" for line in evidence.bugs),
        *_exported(evidence),
        *(traced.violations(evidence.traced, evidence.agents) if evidence.traced else ()),
    ]
    missed = [fault for fault in evidence.faults if not fault["bit"] and not fault["again"]]
    void = [
        f"{fault['kind']} of {fault['target'] or 'nobody'}: {fault['error'] or 'nobody met it'}"
        for fault in missed
    ]
    return Judgement(
        broken, void, {**figures, **_figures(evidence, repeated, broken), "faults_void": len(void)}
    )


def _exported(evidence: RunEvidence) -> list[str]:
    """Return a violation for each metric that says something else than rows and calls."""
    if evidence.exported is None:
        return []
    return exported.violations(evidence.exported, evidence.run, evidence.received)


def _ended_wrong(evidence: RunEvidence) -> list[str]:
    """Return a violation for each program that ended in a wrong way.

    A program may end with 0, by a signal of ours, or with 3 while a server is away.
    """
    odd = [
        life
        for life in evidence.lives
        if life.code is not None and life.code not in FINE and not _excused(evidence, life)
    ]
    return [
        f"P9 {life.program} of {life.seat} ended with {life.code} at {life.ended_s:.1f}"
        for life in odd
    ]


def _excused(evidence: RunEvidence, life: Life) -> bool:
    servers = ("kafka", "database")
    away = (fault for fault in evidence.faults if fault["kind"].startswith(servers))
    return life.code == UNREACHABLE and any(
        fault["start_s"] <= life.ended_s <= fault["end_s"] + AWAY_S for fault in away
    )


def _figures(
    evidence: RunEvidence, repeated: Sequence[causes.Repeat], broken: Sequence[str]
) -> dict[str, Any]:
    run = evidence.run
    ended = Counter(Status(task.status).name.lower() for task in run.tasks)
    faults = Counter(str(fault["kind"]) for fault in evidence.faults if fault["bit"])
    return {
        "tasks": len(run.tasks),
        "ended": dict(ended),
        "lost": _of(broken, "P1 "),
        "settled_twice": _of(broken, "P2 "),
        "offsets_past_unsettled_work": _of(broken, "P3 "),
        "calls": len(run.calls),
        "calls_in_the_busiest_minute": limits.busiest(evidence.received),
        "refused_by_limits": sum(call.fault in LIMITS for call in evidence.received),
        "limit_a_minute": LIMITS["rpm"] if evidence.limited else None,
        "repeated_calls": len(repeated),
        "repeated_after_an_answer": sum(repeat.paid for repeat in repeated),
        "repeated_by_cause": causes.by_cause(repeated),
        "faults": faults.total(),
        "faults_by_kind": dict(sorted(faults.items())),
        "agents_declared_lost": len(run.declared_lost),
        "dead_by_disposition": dict(
            Counter(task.death.disposition for task in run.tasks if task.death is not None)
        ),
        "rolled_up": {sums.name: sums.rolled_up for sums in run.sums},
        "quarantined": len(run.quarantined),
        "commits_checked": len(run.commits),
        "records_checked": sum(record.lost is None for record in run.records),
        "moves_checked": len(run.moves or ()),
        **_scraped(evidence),
        "traces_wrong": _of(broken, "TRACES "),
        "traces_checked": traced.checked(evidence.traced, evidence.agents)
        if evidence.traced
        else 0,
        "metrics_wrong": _of(broken, "METRICS "),
        "kill_to_rerun_s": _rerun(evidence),
        "other_violations": sum(not line.startswith(("P1 ", "P2 ", "P3 ")) for line in broken),
    }


def _scraped(evidence: RunEvidence) -> dict[str, int]:
    series = evidence.exported.series.values() if evidence.exported is not None else ()
    return {
        "scrapes": sum(len(of_source.scrapes_s) for of_source in series),
        "counters_checked": sum(len(of_source.points) for of_source in series),
    }


def _of(broken: Sequence[str], promise: str) -> int:
    return sum(line.startswith(promise) for line in broken)


def _rerun(evidence: RunEvidence) -> dict[str, Any]:
    """Return how long it took until the tasks of killed agents were called again.

    The times are returned for all kills, and for those without another fault near.
    """
    times: list[float] = []
    alone: list[float] = []
    for fault in evidence.faults:
        if fault["kind"] in {"agent-kill", "agents-kill"}:
            kill_times = _times(evidence, fault)
            times += kill_times
            if not _near(evidence, fault):
                alone += kill_times
    return {"all": _summary(times), "no_other_fault_near": _summary(alone)}


def _times(evidence: RunEvidence, kill: Event) -> list[float]:
    at_s, pids = kill["start_s"], _pids(kill)
    agent_ids = {number for number, life in evidence.agents.items() if life.pid in pids}
    held = _held(evidence.run.moves or (), agent_ids, at_s)
    first: dict[int, float] = {}
    for call in evidence.run.calls:
        if call.task_id in held and call.start_s > at_s:
            first.setdefault(call.task_id, call.start_s - at_s)
    return list(first.values())


def _pids(kill: Event) -> set[int | None]:
    return {kill["evidence"].get("pid"), *kill["evidence"].get("pids", ())}


def _held(moves: Sequence[Move], agents: set[int], at_s: float) -> set[int]:
    """Return the tasks that these incarnations had claimed then."""
    last: dict[int, Move] = {}
    for move in moves:
        if move.at_s <= at_s:
            last[move.task_id] = move
    return {
        key
        for key, move in last.items()
        if move.after is Status.PROCESSING and agent_of(move.owner) in agents
    }


def _near(evidence: RunEvidence, kill: Event) -> bool:
    """Return whether another event may have delayed the take-over.

    That is another fault, or an agent's own end, as at the end of a run.
    """
    from_s, until_s = kill["start_s"], kill["start_s"] + NEAR_S
    faults = any(
        fault["start_s"] <= until_s and fault["end_s"] >= from_s
        for fault in evidence.faults
        if fault is not kill
    )
    return faults or any(
        from_s < life.ended_s <= until_s for life in evidence.lives if life.pid not in _pids(kill)
    )


def _summary(times: Sequence[float]) -> dict[str, Any]:
    if len(times) < 2:
        return {"tasks": len(times)}
    cuts = quantiles(times, n=20)
    return {
        "tasks": len(times),
        "p50": round(cuts[9], 1),
        "p95": round(cuts[18], 1),
        "longest": round(max(times), 1),
    }
