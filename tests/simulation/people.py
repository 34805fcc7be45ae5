"""The commands of people, each as the real command does it.

They cancel, replay, open guards, resume routes, apply topics, archive and purge.
"""

from docllm.producer.app import Parts, make_relay
from docllm.producer.ledger import cancel, guards, long_waits, replay_progress, store
from docllm.producer.ledger.dead_letters.selection import DISPOSITIONS, Selection
from docllm.producer.ledger.replay_progress import ReplayRequest
from docllm.producer.ledger.retention import archive_rows, purge_rows
from docllm.producer.replay import runs
from docllm.producer.replay.applier import make_applier
from docllm.producer.replay.following import Replay
from docllm.producer.retention.archiver import Archiver
from docllm.producer.retention.purge import purge
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.executors import InlineExecutor
from tests.simulation.machine import BATCH, GROUP, Machine
from tests.simulation.tasks import ANEW

ACTOR = "somebody"
CHANGING = 0.5  # of the replays, those with another prompt
ARCHIVES = "s3://archives/docllm/"


async def cancel_batch(machine: Machine) -> None:
    """Do what `producer cancel --batch` does."""
    parts = await machine.parts()
    batch = await parts.transactions.write(store.find_batch, BATCH)
    if batch is None:
        return
    await parts.transactions.write(cancel.cancel_batch, batch, ACTOR)
    crash.reach("cancel.marked")
    more_wait = True
    while more_wait:
        _, more_wait = await parts.transactions.write(cancel.cancel_page, batch.id)
        crash.reach("cancel.page_cancelled")


async def resume_replays(machine: Machine) -> None:
    """Do what `producer replay --resume` does."""
    await _resume(await machine.parts())


async def replay_all(
    machine: Machine, *, cancelled: bool = False, rate: float | None = None
) -> None:
    """Do what `producer replay --all` does, or with `--cancelled`.

    It resumes unfinished replays if no agent runs, then takes the present dead letters. Some
    replays let their tasks run with another prompt.
    """
    parts = await machine.parts()
    await _resume(parts, only_alone=True)
    replay = _replay(parts)
    everything = Selection(cancelled=True) if cancelled else Selection(dispositions=DISPOSITIONS)
    drawn = machine.rng.choice((None, None, 2.0, 0.5))
    changes = {"prompt": ANEW} if machine.rng.random() < CHANGING else {}
    request = ReplayRequest(everything, cap=2, rate=rate or drawn, overrides=changes)
    run = await replay.store(ACTOR, request)
    if run is not None:
        await replay.follow(run)


async def _resume(parts: Parts, *, only_alone: bool = False) -> None:
    await parts.transactions.write(runs.drop_unstored, GROUP)
    if only_alone and await parts.transactions.read(replay_progress.any_agent, GROUP):
        return
    for run in await parts.transactions.write(replay_progress.unfinished, GROUP):
        await _replay(parts).follow(run)


def _replay(parts: Parts) -> Replay:
    relay = make_relay(parts)
    return Replay(
        transactions=parts.transactions,
        relay=relay,
        applier=make_applier(
            parts, relay=relay, apart=InlineExecutor(), failed=lambda _error: None
        ),
        clock=parts.clock,
        group=GROUP,
        progress=lambda _done, _total: None,
        note=lambda _text: None,
    )


async def archive_batch(machine: Machine) -> None:
    """Do what `producer archive` does, once the load is over."""
    parts = await machine.parts()
    read = parts.transactions.read
    batch = await read(store.require_batch, GROUP, BATCH)
    await parts.transactions.write(store.close_batch, batch)
    if await read(archive_rows.covering, batch.id) is not None:
        return
    archiver = Archiver(
        transactions=parts.transactions,
        executor=InlineExecutor(),
        store=machine.outputs,
        ledger_id=parts.ledger_id,
        to=ARCHIVES,
        max_tasks=5,
    )
    await archiver.archive(batch, ACTOR)


async def purge_batch(machine: Machine) -> None:
    """Do what `producer purge` does."""
    parts = await machine.parts()
    target = await parts.transactions.read(purge_rows.find, GROUP, BATCH)
    if target is not None and target.purged_at is None:
        await purge(
            parts.transactions,
            parts.clock,
            target,
            store=machine.outputs,
            actor=ACTOR,
        )


async def open_guards(machine: Machine) -> None:
    """Do what `producer guard open` does."""
    parts = await machine.parts()
    for guard in await parts.transactions.write(guards.read_guards, GROUP):
        if guard.raised:
            await parts.transactions.write(guards.open_one, guard, ACTOR, "it is well again")


async def resume_route(machine: Machine, route: str) -> None:
    """Do what `agent resume` does."""
    parts = await machine.parts()
    await parts.transactions.write(long_waits.resume, GROUP, route, ACTOR)


async def apply_topics(machine: Machine, partitions: int) -> None:
    """Do what `producer topics apply` does."""
    parts = await machine.parts()
    await parts.family.apply(partitions, None)
