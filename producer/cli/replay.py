"""`replay`: tries dead letters again, after it has shown their number and cost."""

import argparse
import asyncio
from collections.abc import Callable

from docllm.producer.app import SCREEN_S, LedgerParts, Parts, make_relay, opened, opened_ledger
from docllm.producer.cli import from_topic
from docllm.producer.cli.cancel import actor
from docllm.producer.cli.replayed_changes import read_overrides
from docllm.producer.cli.selection_options import read_selection
from docllm.producer.input.accounts import TaskAccounts
from docllm.producer.input.estimate import Estimate
from docllm.producer.ledger import long_waits, replay_progress, task_story
from docllm.producer.ledger.dead_letters import reopen
from docllm.producer.ledger.dead_letters.selection import RECORD
from docllm.producer.ledger.long_waits import LongWait, WaitingTasks
from docllm.producer.ledger.replay_progress import ItemState, ReplayRequest, ReplayRun
from docllm.producer.ledger.retention.archive_rows import archive_sentence
from docllm.producer.ledger.store import Batch
from docllm.producer.limits import CAP
from docllm.producer.replay import changes
from docllm.producer.replay import plan as replay_plan
from docllm.producer.replay import runs as storing
from docllm.producer.replay.applier import make_applier
from docllm.producer.replay.following import Replay
from docllm.producer.replay.plan import ReplayPlan
from docllm.producer.replay.runs import Documents
from docllm.producer.screen import replays
from docllm.producer.screen.live import bar
from docllm.producer.screen.output import (
    CommandAnswer,
    agreed,
    answering,
    complain,
    note,
    require_answer,
    width,
)
from docllm.producer.text.printable import shown
from docllm.producer.text.times import written
from docllm.schemas.errors import ConfigError
from docllm.schemas.ledger.database import Connection
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.runtime.next_command import with_config
from docllm.schemas.settings.config import Config
from docllm.schemas.task.line.overrides import FIELDS
from docllm.schemas.text.wording import number_of

RUNS_SHOWN = 20
TO_OPEN = (
    "the batch has no cancelled task; it is opened again, so that its dead tasks can be replayed"
)
NONE_UNFINISHED = "no replay is unfinished"
MODES = {
    "resume": "a replay keeps the options of its start",
    "list": "it changes nothing",
    "from_topic": (
        "it loads every letter, or those of a --disposition, as fast as the ledger takes them"
    ),
}
SELECTS = ("disposition", "fingerprint", "batch", "type", "tenant", "since", "until", "id", "all")
SETTINGS = ("cancelled", "limit", "rate", "cap", "refresh_documents", *FIELDS)


async def replay(config: Config, options: argparse.Namespace) -> int:
    """Replay the selection, or run one of the modes."""
    _check(options)
    with answering(options) as answer:
        if options.from_topic is not None:
            return await from_topic.load(config, options, answer)
        answer.put(dry_run=options.dry_run)
        if options.list or options.dry_run:
            async with opened_ledger(config, reads_s=SCREEN_S) as ledger:
                if options.list:
                    return await _list(ledger, options, answer)
                return await _dry_run(config, ledger, options, answer)
        if not options.resume:
            require_answer(options)
        async with opened(config, options.group) as parts:
            answer.put(replays=[])
            unread = await _resume(parts, options, answer)
            if options.resume:
                return _code(unread)
            return await _replay(parts, options, answer, unread)


def _check(options: argparse.Namespace) -> None:
    """Raise ConfigError for options that exclude each other."""
    modes = [name for name in MODES if getattr(options, name) not in {None, False}]
    selects = [
        name
        for name in SELECTS
        if getattr(options, name) and not (name == "disposition" and modes == ["from_topic"])
    ]
    settings = [name for name in SETTINGS if getattr(options, name)]
    conflicting = modes[1:] + selects + settings
    if modes and conflicting:
        reason = MODES[modes[0]]
        left_out = ", ".join(f"--{name.replace('_', '-')}" for name in conflicting)
        error = f"--{modes[0]} takes no other options, because {reason}; leave out {left_out}"
        raise ConfigError(error.replace("from_topic", "from-topic"))
    if options.force and options.from_topic is None:
        raise ConfigError("--force needs --from-topic")
    if not modes and not selects:
        raise ConfigError(
            f"say what to replay: {', '.join(f'--{name}' for name in SELECTS[:-1])}, or --all; "
            f"to look first: docllm dead list --group {options.group}"
        )


async def _list(parts: LedgerParts, options: argparse.Namespace, answer: CommandAnswer) -> int:
    runs = await parts.transactions.read(replay_progress.latest, options.group, RUNS_SHOWN)
    answer.say(
        "\n".join(replays.run_line(run) for run in runs)
        or f"nothing was replayed in group {options.group}",
        replays=[replays.run_json(run) for run in runs],
    )
    if not options.json:
        advice = f"what is dead now: docllm dead list --group {options.group}"
        if any(run.ended_at is None for run in runs):
            advice = f"to follow the unfinished: docllm replay --resume --group {options.group}"
        note(with_config(advice, options.config))
    return 0


async def _dry_run(
    config: Config, parts: LedgerParts, options: argparse.Namespace, answer: CommandAnswer
) -> int:
    code = 0 if options.resume else await _dry_plan(config, parts, options, answer)
    runs = await parts.transactions.read(replay_progress.unfinished, options.group)
    answer.put(unfinished=[replays.run_json(run) for run in runs])
    for run in runs:
        answer.say(
            f"replay {run.id} is unfinished and would continue: {run.left} of {run.total} left"
        )
    if options.resume and not runs:
        answer.say(NONE_UNFINISHED)
    answer.say("dry run: nothing is changed")
    return code


async def _dry_plan(
    config: Config, parts: LedgerParts, options: argparse.Namespace, answer: CommandAnswer
) -> int:
    request, plan, documents = await _planned(config, parts, options, answer)
    if await _cancelled_batch(parts, request, plan) is not None:
        answer.say(TO_OPEN)
    if plan.tasks + plan.records:
        return _code(len(documents.unusable))
    return await _why_nothing(parts, options, answer, request)


async def _cancelled_batch(
    parts: LedgerParts | Parts, request: ReplayRequest, plan: ReplayPlan
) -> Batch | None:
    """Return the cancelled batch to open again although no task is replayed, or None."""
    if plan.tasks or plan.capped:
        return None
    return await parts.transactions.read(reopen.cancelled_batch, request.selection)


async def _planned(
    config: Config, parts: LedgerParts | Parts, options: argparse.Namespace, answer: CommandAnswer
) -> tuple[ReplayRequest, ReplayPlan, Documents]:
    """Read the selection; show what a replay of it would do.

    Raises ConfigError if a task could not run with what the replay changes.
    """
    selection = await parts.transactions.read(read_selection, options)
    request = ReplayRequest(
        selection,
        options.cap or CAP,
        options.rate,
        overrides=read_overrides(options),
        refreshes=options.refresh_documents,
    )
    if selection.names_records and request.changes:
        raise ConfigError(
            f"quarantined records run as they are; leave out {' '.join(request.changes)}"
        )
    tasks = parts.transactions.database.run_singly, config, options.group, selection
    if request.overrides:
        await parts.transactions.executor(lambda: changes.check(*tasks, request.overrides))
    plan = await parts.transactions.read(replay_plan.plan, options.group, request)
    estimate = Estimate(TaskAccounts(config))
    read = parts.transactions.database.run_singly
    await parts.transactions.executor(
        lambda: replay_plan.measure(read, options.group, request, plan.tasks, estimate)
    )
    lines = replays.plan_lines(plan, request, estimate, width())
    answer.say("\n".join(lines), plan=replays.plan_json(plan, estimate))
    if request.changes:
        answer.say(f"they run with {shown(' '.join(request.changes), 500)}")
    if not request.refreshes:
        return request, plan, Documents()
    documents = await parts.transactions.executor(lambda: changes.read_documents(*tasks))
    answer.say(
        "\n".join(replays.documents_lines(documents)), documents=replays.documents_json(documents)
    )
    return request, plan, documents


async def _why_nothing(
    parts: LedgerParts | Parts,
    options: argparse.Namespace,
    answer: CommandAnswer,
    request: ReplayRequest,
) -> int:
    """Report the state of the named task or record; return 1 if it does not exist."""
    selection, group = request.selection, options.group
    if selection.record is not None:
        number = selection.record
        record = await parts.transactions.read(task_story.record, group, number)
        if record is not None and record.replayed_at is not None:
            answer.say(
                f"{RECORD}{number} was replayed {written(record.replayed_at)}",
                replayed_at=written(record.replayed_at),
            )
        return 0 if record is not None else _unknown(options, answer)
    names = [] if selection.batch is None else [selection.batch]
    key = selection.key
    if key is None:
        await _tell_of_archive(parts, answer, names)
        return 0
    states = await parts.transactions.read(task_story.states, group, key, selection.batch)
    answer.put(states=[{"batch": name, "state": status.name.lower()} for name, status in states])
    for batch_name, status in states:
        answer.say(f"task {key} of batch {batch_name} is {status.name.lower()}")
    await _tell_of_archive(parts, answer, names or [batch_name for batch_name, _ in states])
    return 0 if states else _unknown(options, answer)


async def _tell_of_archive(
    parts: LedgerParts | Parts, answer: CommandAnswer, names: list[str]
) -> None:
    """Say of each of these batches that is archived or purged, that it takes no replay."""
    for name in names:
        if words := await parts.transactions.read(archive_sentence, name):
            answer.warn(f"{words}; to try its tasks again, load their lines under another name")


def _unknown(options: argparse.Namespace, answer: CommandAnswer) -> int:
    where = f"batch {options.batch!r}" if options.batch else f"group {options.group}"
    error = with_config(
        f"no {options.id!r} in {where}; see: docllm dead list --group {options.group}",
        options.config,
    )
    answer.put(error=error, id=options.id)
    complain(error)
    return 1


async def _replay(
    parts: Parts, options: argparse.Namespace, answer: CommandAnswer, unread: int
) -> int:
    request, plan, documents = await _planned(parts.config, parts, options, answer)
    unread += len(documents.unusable)
    ready = plan.tasks - len(documents.unusable)
    await _end_waits(parts, options, answer, request)
    if (cancelled_batch := await _cancelled_batch(parts, request, plan)) is not None:
        return max(_code(unread), await _open(parts, options, answer, cancelled_batch))
    if not plan.tasks + plan.records:
        return max(_code(unread), await _why_nothing(parts, options, answer, request))
    if not ready + plan.records:
        return _code(unread)
    if not await agreed(options, f"replay {replays.items(ready, plan.records)}?"):
        answer.say("nothing is replayed")
        return _code(unread)
    run = await _replayer(parts).store(actor(), request, documents)
    return _code(unread if run is None else unread + await _follow(parts, options, answer, run))


async def _end_waits(
    parts: Parts, options: argparse.Namespace, answer: CommandAnswer, request: ReplayRequest
) -> None:
    """Have the routes called again for which selected tasks wait long after a refused call.

    Such tasks are not dead, so they are no part of the replay; but who replays them wants a call.
    """
    of = _waiting_tasks(options, request)
    if of is None:
        return

    def work(connection: Connection) -> list[LongWait]:
        waits = long_waits.read(connection, of)
        for wait in waits:
            long_waits.resume(connection, of.group, wait.route, actor())
        return waits

    for wait in await parts.transactions.write(work):
        waiting = number_of(wait.tasks, "task")
        answer.say(
            f"{waiting} waited until {written(wait.due_at)} after a refused call on route "
            f"{shown(wait.route)}: running agents call it again within three seconds"
        )


def _waiting_tasks(options: argparse.Namespace, request: ReplayRequest) -> WaitingTasks | None:
    """Return the waiting tasks that a selection covers; None if it is only of ended tasks."""
    selection = request.selection
    of_ended = (selection.dispositions, selection.fingerprint, selection.since, selection.until)
    if selection.cancelled or selection.record is not None or any(of_ended):
        return None
    return WaitingTasks(
        options.group, selection.batch, selection.type, selection.tenant, selection.key
    )


async def _open(
    parts: Parts, options: argparse.Namespace, answer: CommandAnswer, cancelled_batch: Batch
) -> int:
    """Open a batch that has no cancelled task.

    This does not replay its dead letters, but makes a replay possible.
    """
    answer.say(TO_OPEN)
    if not await agreed(options, f"open batch {cancelled_batch.name}?"):
        answer.say("nothing is opened")
        return 0
    await parts.transactions.write(reopen.reopen, cancelled_batch, actor())
    answer.say(f"batch {shown(cancelled_batch.name)} is open again", opened=cancelled_batch.name)
    return 0


async def _resume(parts: Parts, options: argparse.Namespace, answer: CommandAnswer) -> int:
    """Follow the unfinished replays; return how many records could not be read.

    Without `--resume`, replays that agents apply are left to them.
    """
    group, unread = parts.topics.group, 0
    await parts.transactions.write(storing.drop_unstored, group)
    runs = await parts.transactions.read(replay_progress.unfinished, group)
    if options.resume and not runs:
        answer.say(NONE_UNFINISHED)
    follows = options.resume or not await parts.transactions.read(replay_progress.any_agent, group)
    for run in runs:
        ordered = f"{shown(str(run.request))}, by {shown(run.actor)}"
        progress = f"{run.left} of {run.total} left ({ordered})"
        if follows:
            answer.say(f"resuming replay {run.id}: {progress}")
            unread += await _follow(parts, options, answer, run)
        else:
            note(f"replay {run.id} is unfinished, agents apply it: {progress}")
    return unread


async def _follow(
    parts: Parts, options: argparse.Namespace, answer: CommandAnswer, run: ReplayRun
) -> int:
    """Follow a replay and report its result; return how many records could not be read."""
    try:
        with bar(f"replay {run.id}") as progress:
            report = await _replayer(parts, progress.show).follow(run)
    except asyncio.CancelledError:
        note(with_config(_interrupted(run, options.group), options.config))
        raise
    ended = report.run
    answer.say(f"replay {run.id}: {replays.result(ended)}")
    answer.add("replays", replays.run_json(ended))
    unread = await parts.transactions.read(replay_progress.unread, run.id, replays.UNREAD_SHOWN)
    for line in replays.report_lines(report, unread):
        note(line)
    return ended.counts.get(ItemState.UNREAD, 0)


def _interrupted(run: ReplayRun, group: str) -> str:
    """Return what becomes of a replay whose command is interrupted."""
    return (
        f"replay {run.id} goes on without this command while an agent of group {group} runs; "
        f"to look: docllm replay --list --group {group}; "
        f"to follow it again: docllm replay --resume --group {group}"
    )


def _replayer(parts: Parts, progress: Callable[[int, int], None] | None = None) -> Replay:
    relay = make_relay(parts)
    return Replay(
        transactions=parts.transactions,
        relay=relay,
        applier=make_applier(
            parts, relay=relay, apart=InlineExecutor(), failed=lambda _error: None
        ),
        clock=parts.clock,
        group=parts.topics.group,
        progress=progress or (lambda _done, _total: None),
        note=note,
    )


def _code(unread: int) -> int:
    return 1 if unread else 0
