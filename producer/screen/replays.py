"""Shows replays as lines for a person. No query, no decision."""

from collections.abc import Iterator

from producer.input.estimate import Estimate
from producer.ledger.selection import OF_RECORDS, RECORD
from producer.replay.plan import SAMPLE, ReplayPlan
from producer.replay.runner import Report
from producer.replay.runs import ItemState, ReplayRequest, Run
from producer.screen.dead_letters import groups_lines, money
from producer.text.printable import shown
from producer.text.times import written
from schemas.task.wording import counted

UNREAD_SHOWN = 20


def plan_lines(
    plan: ReplayPlan, wish: ReplayRequest, estimate: Estimate, width: int
) -> Iterator[str]:
    """Yield what would be replayed, what would be left and why, and what it costs."""
    if plan.groups:
        yield from groups_lines(plan.groups, width)
    for name, count in plan.batches:
        yield f"{count:7}  cancelled in batch {shown(name, 191)}"
    yield f"to replay: {items(plan.tasks, plan.records)}"
    if plan.late:
        yield f"  {plan.late} of them are past their deadline and will end as expired again"
    if plan.capped:
        yield f"left: {plan.capped} at the cap of {wish.cap} replays; --cap takes them too"
    if plan.closed:
        yield (
            f"left: {plan.closed} dead in a cancelled batch; "
            "replay --cancelled --batch NAME opens it again"
        )
    if plan.quarantined:
        yield (
            f"left: {plan.quarantined} quarantined records; "
            "--disposition undecodable or rejected takes them"
        )
    if plan.tasks:
        spent = plan.spent
        tokens = f"{spent.tokens_in:,}+{spent.tokens_out:,} tokens"
        yield (
            f"spent on them so far: {money(spent.cost_micro)}, "
            f"{tokens} in {counted(spent.attempts, 'attempt')}"
        )
        sample = f" (measured on the first {SAMPLE:,})" if plan.tasks > SAMPLE else ""
        yield f"one more attempt of each: {estimate}{sample}"


def items(tasks: int, records: int) -> str:
    """Return how many tasks and records, in words."""
    said = [f"{tasks} task{'' if tasks == 1 else 's'}"] if tasks or not records else []
    return " and ".join(
        [*said, *([f"{records} record{'' if records == 1 else 's'}"] if records else [])]
    )


def result(run: Run) -> str:
    """Return the result of a run."""
    counts = run.counts
    said = [
        (
            f"{counts.get(ItemState.REPLAYED, 0)} "
            f"{'are tasks now' if _only_records(run.wish) else 'wait again'}"
        )
    ]
    said += (
        [f"{counts[ItemState.PASSED]} passed over: changed meanwhile, or their batch is cancelled"]
        if counts.get(ItemState.PASSED)
        else []
    )
    said += (
        [f"{counts[ItemState.UNREAD]} records are still no tasks"]
        if counts.get(ItemState.UNREAD)
        else []
    )
    said += [f"{run.left} left"] if run.left else []
    return ", ".join(said)


def _only_records(wish: ReplayRequest) -> bool:
    """Return whether the wish selects records only.

    A record whose task existed already, such as a copy of another record, makes no task wait.
    """
    chosen = wish.selection
    return not chosen.with_tasks or bool(
        chosen.dispositions and OF_RECORDS.issuperset(chosen.dispositions)
    )


def report_lines(report: Report) -> Iterator[str]:
    """Yield further notes for a person."""
    for number, why in list(report.unread.items())[:UNREAD_SHOWN]:
        yield f"{RECORD}{number} stays: {shown(why, 500)}"
    if len(report.unread) > UNREAD_SHOWN:
        yield f"... and {len(report.unread) - UNREAD_SHOWN} more records"
    if report.unsent:
        yield "some records are not on their topic yet; any agent sends them"


def run_line(run: Run) -> str:
    """Return a run on one line: its time, its actor, its selection and its counts."""
    state = "unfinished" if run.ended_at is None else f"ended {written(run.ended_at)}"
    who = f"replay {run.id}  {written(run.created_at)}  {shown(run.actor, 191)}"
    return f"{who}  {run.wish.selection}: {result(run)} of {run.total}; {state}"
