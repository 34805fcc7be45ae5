"""The judge of fault runs: exit codes, void runs, and waits of a killed agent's tasks."""

from collections.abc import Sequence
from typing import Any

import pytest

from docllm.schemas.task.owner import owner_of
from docllm.schemas.task.states import Status
from tests.faults import limits, report
from tests.faults.exported import Exported, Rows, Series
from tests.faults.judge import Judgement, judge
from tests.faults.lives import Life
from tests.faults.received_calls import ReceivedCall
from tests.faults.run_evidence import RunEvidence
from tests.faults.site import LIMITS
from tests.invariants.counted import Sums
from tests.invariants.evidence import Call, Evidence
from tests.invariants.happened import Move

KNOWN = {"date": "2026-01-01", "seed": 1, "minutes": 10, "cores": 2}
KILLED, PID = 5, 4711


def fault(
    kind: str,
    start_s: float,
    end_s: float,
    *,
    bit: bool = True,
    again: bool = False,
    **evidence: Any,
) -> dict[str, Any]:
    return {
        "kind": kind,
        "cost": "lease",
        "target": "it",
        "seats": ["agent1"],
        "start_s": start_s,
        "end_s": end_s,
        "bit": bit,
        "again": again,
        "error": "",
        "evidence": evidence,
    }


def judged(
    faults: Sequence[dict[str, Any]] = (),
    lives: Sequence[Life] = (),
    bugs: Sequence[str] = (),
    exported: Exported | None = None,
    **run: Any,
) -> Judgement:
    agents = {KILLED: Life("03-agent", PID, "agent1", 0)}
    return judge(
        RunEvidence(
            run=Evidence(frozenset(), [], **run),
            received=[],
            faults=faults,
            lives=lives,
            agents=agents,
            bugs=bugs,
            exported=exported,
        ),
        figures=KNOWN,
    )


def test_a_quiet_run_is_good() -> None:
    """A run without violations, in which every fault met somebody, is good."""
    assert judged([fault("kafka-kill", 1, 5)]).good


def test_a_fault_that_hit_no_program_makes_the_run_void() -> None:
    """A fault that met nobody makes the run void: it proves nothing."""
    verdict = judged([fault("kafka-kill", 1, 5, bit=False)])

    assert (verdict.good, len(verdict.void), verdict.violations) == (False, 1, [])


def test_a_fault_that_hit_at_its_second_try_counts_once() -> None:
    """A fault that met somebody at its second try counts once, and the first try stays logged.

    The first try may have had an effect too.
    """
    verdict = judged([fault("kafka-kill", 1, 5, bit=False, again=True), fault("kafka-kill", 6, 9)])

    assert (verdict.good, verdict.figures["faults"], verdict.figures["faults_void"]) == (True, 1, 0)


@pytest.mark.parametrize(
    ("code", "ended_s", "wrong"),
    [
        (0, 500, False),
        (-9, 500, False),
        (5, 3, True),
        (3, 3, False),
        (3, 500, True),
        (-11, 3, True),
    ],
)
def test_programs_end_as_they_may(
    code: int,
    ended_s: float,
    wrong: bool,  # noqa: FBT001 - a row of a table
) -> None:
    """Programs may end with 0, by a signal of ours, or with 3 while a server is away.

    A bug or a crash is never excused.
    """
    verdict = judged(
        [fault("database-kill", 1, 5)],
        [
            Life(
                program="03-agent",
                pid=PID,
                seat="agent1",
                began_s=0,
                ended_s=ended_s,
                code=code,
                by="itself",
            )
        ],
    )

    assert bool(verdict.violations) == wrong


def test_a_logged_bug_is_a_violation() -> None:
    """An agent that logs a bug and goes on violates the promises."""
    assert judged(bugs=["03-agent: internal error"]).violations


def test_metrics_are_judged_and_told() -> None:
    """A run whose exporter says nothing at the end is no proof, however well all else went."""
    shown = Series()
    shown.add(1.0, {("docllm_tasks_loaded_total", "g"): 0})
    nothing = Rows(tasks=0, succeeded=0, attempts={}, tokens={}, cost_micro=0)
    samples: dict[tuple[str, ...], float] = {("docllm_tasks_loaded_total", "g"): 0.0}
    good = judged(exported=Exported({"exporter": shown}, samples, nothing))
    assert good.good
    assert "counters that fell or lied: 0 of 1 in 1 scrapes" in list(report.lines(good))

    silent = judged(exported=Exported({}, {}, nothing))
    assert (len(silent.violations), silent.figures["metrics_wrong"]) == (1, 1)


def test_the_wait_of_a_killed_agents_tasks_is_measured() -> None:
    """The wait is measured from the kill to the next call of each task claimed then."""
    moves = [claim(1, at_s=9), claim(2, at_s=9.5), settled(2, at_s=9.9), claim(3, at_s=9)]
    calls = [
        Call(f"b/t{number}", start_s, task_id=number)
        for number, start_s in ((1, 9.1), (1, 22), (2, 9.6), (3, 24))
    ]
    verdict = judged([fault("agent-kill", 10, 10.1, pid=PID)], moves=moves, calls=calls)

    assert verdict.figures["kill_to_rerun_s"]["all"]["tasks"] == 2
    assert verdict.figures["kill_to_rerun_s"]["all"]["longest"] == 14


def test_the_figures_tell_what_compaction_did() -> None:
    """A run in which it never came proves nothing of it."""
    verdict = judged(sums=(Sums("counts", {}, {}, rolled_up=7), Sums("hours", {}, {})))

    assert verdict.figures["rolled_up"] == {"counts": 7, "hours": 0}


@pytest.mark.parametrize(
    ("other", "ended_s", "alone"),
    [("kafka-kill", 500, False), ("", 500, True), ("", 12, False), ("", 41, True), ("", 9, True)],
)
def test_a_kill_is_measured_only_if_no_other_fault_is_near(
    other: str,
    ended_s: float,
    alone: bool,  # noqa: FBT001
) -> None:
    """A kill counts for the measure only if no other fault is near it.

    Agents that leave by themselves, as all do at the end of a run, spoil the measure too.
    """
    moves, calls = (
        [claim(1, at_s=9), claim(2, at_s=9)],
        [Call(f"b/t{number}", 22, task_id=number) for number in (1, 2)],
    )
    lives = [
        Life(
            program="03-agent", pid=PID, seat="agent1", began_s=0, ended_s=10.1, code=-9, by="fault"
        ),
        Life(
            program="04-agent",
            pid=PID + 1,
            seat="agent2",
            began_s=0,
            ended_s=ended_s,
            code=0,
            by="itself",
        ),
    ]
    faults = [fault("agent-kill", 10, 10.1, pid=PID), *([fault(other, 30, 31)] if other else [])]
    verdict = judged(faults, lives, moves=moves, calls=calls)

    assert verdict.figures["kill_to_rerun_s"]["no_other_fault_near"]["tasks"] == (2 if alone else 0)


def test_a_report_can_be_shown() -> None:
    """A report can be shown as lines, and with others as a table, even with values missing."""
    verdict = judged([fault("agent-kill", 10, 10.1, pid=PID)])

    assert "lost: 0" in list(report.lines(verdict))
    table = list(report.table([verdict.figures, verdict.figures]))
    assert "| lost | 0 | 0 |" in table
    assert f"{2 * verdict.figures['tasks']} tasks and 2 faults, 0 lost" in table[-1]


def claim(task_id: int, at_s: float) -> Move:
    owner = owner_of(KILLED, task_id)
    return Move(
        order=at_s,
        at_s=at_s,
        clock_s=at_s,
        task_id=task_id,
        before=Status.PENDING,
        after=Status.PROCESSING,
        old_owner=0,
        owner=owner,
        old_fence=0,
        fence=0,
        old_due_s=0.0,
    )


def settled(task_id: int, at_s: float) -> Move:
    owner = owner_of(KILLED, task_id)
    return Move(
        order=at_s,
        at_s=at_s,
        clock_s=at_s,
        task_id=task_id,
        before=Status.PROCESSING,
        after=Status.SUCCEEDED,
        old_owner=owner,
        owner=0,
        old_fence=0,
        fence=0,
        old_due_s=0.0,
    )


def calls(count: int, every_s: float, seat: str = "agent1") -> list[ReceivedCall]:
    return [ReceivedCall(Call("b/t1", n * every_s), None, seat) for n in range(count)]


def test_an_account_gets_no_more_calls_in_a_minute_than_its_limit() -> None:
    """A fault that held calls of the agent back excuses those of its slots."""
    usual = 60 / LIMITS["rpm"]
    assert list(limits.violations(calls(3 * LIMITS["rpm"], usual), [])) == []
    assert list(limits.violations(calls(LIMITS["rpm"], usual / 2, "tools"), [])) == []

    fast = calls(2 * LIMITS["rpm"], usual / 1.1)
    (line,) = limits.violations(fast, [])
    assert line.startswith(f"P5 {limits.busiest(fast)} calls of agent1 in the minute from 0.0")
    assert list(limits.violations(fast, [fault("llm-freeze", 30.0, 70.0)] * 2)) == []
    assert list(limits.violations(fast, [fault("llm-freeze", 190.0, 200.0)] * 2)) != []
    assert limits.busiest(fast) == pytest.approx(1.1 * LIMITS["rpm"], abs=1)
