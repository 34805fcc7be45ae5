"""Shows replays as lines for a person. No query, no decision."""

from collections.abc import Iterator, Sequence
from typing import Any

from docllm.producer.input.estimate import Estimate
from docllm.producer.ledger.dead_letters.selection import OF_RECORDS, RECORD
from docllm.producer.ledger.replay_progress import ItemState, ReplayRequest, ReplayRun
from docllm.producer.replay.following import ReplayReport
from docllm.producer.replay.plan import MAX_READ, SAMPLE, ReplayPlan
from docllm.producer.replay.runs import Documents
from docllm.producer.screen.dead_letters import groups_lines
from docllm.producer.text.printable import shown
from docllm.producer.text.times import written
from docllm.schemas.text.wording import cost_text, cost_units, number_of

UNREAD_SHOWN = 20


def plan_lines(
    plan: ReplayPlan, request: ReplayRequest, estimate: Estimate, width: int
) -> Iterator[str]:
    """Yield what would be replayed, what would be left and why, and what it costs."""
    if plan.groups:
        yield from groups_lines(plan.groups, width)
    for name, count in plan.batches:
        yield f"{count:7}  cancelled in batch {shown(name, 191)}"
    yield f"to replay: {items(plan.tasks, plan.records)}"
    if plan.late:
        late = f"{MAX_READ:,} or more" if plan.late == MAX_READ else plan.late
        yield f"  {late} of them are past their deadline and will end as expired again"
    if plan.capped:
        at_cap = f"{plan.capped} at the cap of {number_of(request.cap, 'replay')}"
        yield f"left: {at_cap}; raise --cap to take them too"
    if plan.closed:
        yield (
            f"left: {plan.closed} dead in a cancelled, archived or purged batch; "
            "replay --cancelled --batch NAME opens a cancelled one again"
        )
    if plan.quarantined:
        yield (
            f"left: {number_of(plan.quarantined, 'quarantined record')}; "
            "--disposition undecodable or rejected takes them"
        )
    if plan.tasks:
        spent = plan.spent
        tokens = f"{spent.tokens_in:,}+{spent.tokens_out:,} tokens"
        yield (
            f"spent on them so far: {cost_text(spent.cost_micro, spent.unpriced)}, "
            f"{tokens} in {number_of(spent.attempts, 'attempt')}"
        )
        sample = f" (measured on the first {SAMPLE:,})" if plan.tasks > SAMPLE else ""
        yield f"one more attempt of each: {estimate}{sample}"


def documents_lines(documents: Documents) -> Iterator[str]:
    """Yield what became of the documents of the selected tasks, and which cannot be read."""
    changed = number_of(len(documents.news), "document")
    yield f"{changed} changed, {documents.unchanged} as when loaded"
    if documents.inline:
        yield (
            f"{number_of(documents.inline, 'task')} without a file that was compared: such text is "
            "in the line; for a new one: docllm dead export"
        )
    if documents.unusable:
        yield f"left: {number_of(len(documents.unusable), 'task')}, whose documents cannot be used"
    for problem in list(documents.unusable.values())[:UNREAD_SHOWN]:
        yield f"  {shown(problem, 500)}"
    if len(documents.unusable) > UNREAD_SHOWN:
        yield f"  ... and {len(documents.unusable) - UNREAD_SHOWN} more; --json shows all of them"


def documents_json(documents: Documents) -> dict[str, Any]:
    """Return the form of the documents for `--json`."""
    return {
        "changed": len(documents.news),
        "unchanged": documents.unchanged,
        "inline": documents.inline,
        "unusable": list(documents.unusable.values()),
    }


def items(tasks: int, records: int) -> str:
    """Return how many tasks and records, in words."""
    parts = [f"{tasks} task{'' if tasks == 1 else 's'}"] if tasks or not records else []
    if records:
        parts.append(f"{records} record{'' if records == 1 else 's'}")
    return " and ".join(parts)


def result(run: ReplayRun) -> str:
    """Return the result of a run."""
    replayed, skipped, unread = (
        run.counts.get(state, 0)
        for state in (ItemState.REPLAYED, ItemState.SKIPPED, ItemState.UNREAD)
    )
    is_one = replayed == 1
    if _only_records(run.request):
        parts = ["1 is a task now" if is_one else f"{replayed} are tasks now"]
    else:
        parts = ["1 waits again" if is_one else f"{replayed} wait again"]
    if skipped:
        parts.append(f"{skipped} passed over: changed meanwhile, or their batch is cancelled")
    if unread:
        are_no_tasks = "is still no task" if unread == 1 else "are still no tasks"
        parts.append(f"{number_of(unread, 'record')} {are_no_tasks}")
    if run.left:
        parts.append(f"{run.left} left")
    return ", ".join(parts)


def _only_records(request: ReplayRequest) -> bool:
    """Return whether the request selects records only.

    Records create no waiting tasks if their tasks existed already, as for copies of another record.
    """
    selection = request.selection
    return not selection.with_tasks or bool(
        selection.dispositions and OF_RECORDS.issuperset(selection.dispositions)
    )


def report_lines(report: ReplayReport, unread: Sequence[tuple[int, str]]) -> Iterator[str]:
    """Yield further notes for a person. `unread` has the first records that are no tasks."""
    for number, reason in unread:
        yield f"{RECORD}{number} stays: {shown(reason, 500)}"
    more = report.run.counts.get(ItemState.UNREAD, 0) - len(unread)
    if more > 0:
        yield f"... and {number_of(more, 'more record')}"
    if report.unsent:
        yield "some records are not on their topic yet; any agent sends them"


def run_line(run: ReplayRun) -> str:
    """Return a run on one line: its time, its actor, its selection and its counts."""
    head = f"replay {run.id}  {written(run.created_at)}  {shown(run.actor, 191)}"
    return f"{head}  {shown(str(run.request))}: {result(run)} of {run.total}; {_state(run)}"


def run_json(run: ReplayRun) -> dict[str, Any]:
    """Return the form of a run for `--json`."""
    return {
        "id": run.id,
        "actor": run.actor,
        "selection": str(run.request),
        "created_at": written(run.created_at),
        "ended_at": None if run.ended_at is None else written(run.ended_at),
        "rate_per_s": run.request.rate,
        "total": run.total,
        "left": run.left,
        "replayed": run.counts.get(ItemState.REPLAYED, 0),
        "skipped": run.counts.get(ItemState.SKIPPED, 0),
        "unread": run.counts.get(ItemState.UNREAD, 0),
    }


def plan_json(plan: ReplayPlan, estimate: Estimate) -> dict[str, Any]:
    """Return the form of a plan for `--json`."""
    return {
        "tasks": plan.tasks,
        "records": plan.records,
        "late": plan.late,
        "capped": plan.capped,
        "closed": plan.closed,
        "quarantined": plan.quarantined,
        "spent": {
            "attempts": plan.spent.attempts,
            "tokens_in": plan.spent.tokens_in,
            "tokens_out": plan.spent.tokens_out,
            "cost": cost_units(plan.spent.cost_micro, plan.spent.unpriced),
            "unpriced_calls": plan.spent.unpriced,
        },
        "estimate": estimate.as_json(),
    }


def _state(run: ReplayRun) -> str:
    if run.ended_at is not None:
        return f"ended {written(run.ended_at)}"
    return "unfinished" if run.request.rate is None else f"unfinished, {rate(run)}"


def unfinished_line(run: ReplayRun) -> str:
    """Return how far an unfinished run is, for `status`, which makes the text safe to show."""
    paced = "" if run.request.rate is None else f", {rate(run)}"
    return f"replay {run.id} by {run.actor}: {run.done} of {run.total} done{paced}"


def rate(run: ReplayRun) -> str:
    """Return the most items a second that a run lets through, in words."""
    return f"at most {run.request.rate:g}/s"
