"""A run's figures for people: as JSON, as lines, and as the table of docs/explanation/proof.md.

`python -m tests.faults.report FILE...` prints the table of earlier reports, with a column for each.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from tests.faults.judge import Judgement

SHOWN_VIOLATIONS = 40
RULE_OF_THREE = 3  # no case in N means, at 95 %, that fewer than 3 in N are cases


def as_json(judgement: Judgement) -> str:
    """Return the figures, and the violations if there are any."""
    whole = {
        **judgement.figures,
        "void": list(judgement.void),
        "wrong": list(judgement.violations)[:SHOWN_VIOLATIONS],
    }
    return orjson.dumps(whole, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def lines(judgement: Judgement) -> Iterator[str]:
    """Return the lines printed at the end of a run."""
    yield from (f"{name}: {value}" for name, value in _facts(judgement.figures))
    yield f"bound: {_bound(judgement.figures)}"
    yield from (f"VOID {line}" for line in judgement.void)
    yield from (f"WRONG {line}" for line in judgement.violations)
    yield (
        "every promise held, every fault met somebody"
        if judgement.good
        else "this run proves nothing, or the opposite"
    )


def table(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return the figures of runs as a Markdown table, and the bound that they support together."""
    columns = [dict(_facts(run)) for run in runs]
    yield _row("figure", *(f"run {number}" for number, _ in enumerate(runs, 1)))
    yield _row(*["---"] * (len(runs) + 1))
    yield from (_row(name, *(facts.get(name, "") for facts in columns)) for name in columns[0])
    counts = {name: sum(run[name] for run in runs) for name in ("tasks", "faults", "lost")}
    yield (
        f"\nTogether {counts['tasks']:,} tasks and {counts['faults']:,} faults, "
        f"{counts['lost']} lost: {_bound(counts)}."
    )


def _facts(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    count = figures["faults"]
    yield (
        "run",
        (
            f"{figures['date']}, seed {figures['seed']}, {figures['minutes']} minutes, "
            f"{figures['cores']} cores"
        ),
    )
    yield "tasks", f"{figures['tasks']:,}: {_counts(figures['ended'])}"
    yield (
        "faults",
        (
            f"{count:,} of {len(figures['faults_by_kind'])} kinds, {figures['faults_void']} of "
            "them met nobody"
        ),
    )
    yield "lost", str(figures["lost"])
    yield "settled twice", str(figures["settled_twice"])
    yield (
        "offsets past unsettled work",
        f"{figures['offsets_past_unsettled_work']} of {figures['commits_checked']:,} commits",
    )
    yield (
        "counters that fell or lied",
        (
            f"{figures.get('metrics_wrong', 0)} of {figures.get('counters_checked', 0):,} in "
            f"{figures.get('scrapes', 0):,} scrapes"
        ),
    )
    yield (
        "attempts missing in their traces",
        f"{figures.get('traces_wrong', 0)} of {figures.get('traces_checked', 0):,}",
    )
    yield "other broken promises", str(figures["other_violations"])
    yield "calls", f"{figures['calls']:,}, of which repeated {figures['repeated_calls']:,}"
    limit = figures.get("limit_a_minute") or "none"
    busiest, refused = (
        figures.get(name, 0) for name in ("calls_in_the_busiest_minute", "refused_by_limits")
    )
    yield "calls of an agent in a minute, most", f"{busiest:,}, limit {limit}, refused {refused:,}"
    yield "repeated calls by cause", _counts(figures["repeated_by_cause"])
    yield "repeated after an answer", f"{figures['repeated_after_an_answer']:,}"
    yield "agents declared lost", str(figures["agents_declared_lost"])
    yield "dead letters left", _counts(figures["dead_by_disposition"])
    yield "sums that compaction made", _counts(figures["rolled_up"])
    for name, times in figures["kill_to_rerun_s"].items():
        yield f"kill -9 to re-run, {name.replace('_', ' ')}", _times(times)
    yield "faults by kind", _counts(figures["faults_by_kind"])


def _bound(figures: Mapping[str, Any]) -> str:
    """Return the bound that no loss in so many tasks and faults supports."""
    if not figures["faults"] or not figures["tasks"] or figures["lost"]:
        return "no bound"
    of_faults, of_tasks = RULE_OF_THREE / figures["faults"], RULE_OF_THREE / figures["tasks"]
    return (
        f"at 95 % fewer than {of_faults:.2%} of such faults lose a task, and fewer than "
        f"{of_tasks:.4%} of tasks are lost"
    )


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "none"


def _times(times: Mapping[str, Any]) -> str:
    if "p50" not in times:
        return f"{times['tasks']} tasks"
    return (
        f"{times['tasks']} tasks, p50 {times['p50']} s, p95 {times['p95']} s, longest "
        f"{times['longest']} s"
    )


if __name__ == "__main__":
    sys.stdout.write(
        "\n".join(table([orjson.loads(Path(name).read_bytes()) for name in sys.argv[1:]])) + "\n"
    )
