"""`purge`: deletes the rows of batches that are done."""

import argparse
from collections.abc import Sequence
from typing import Any

from docllm.producer.app import LedgerParts, opened_ledger
from docllm.producer.cli.cancel import actor
from docllm.producer.ledger.dead_letters import selection_query
from docllm.producer.ledger.retention import purge_rows
from docllm.producer.ledger.retention.purge_rows import Purgeable
from docllm.producer.ledger.store import no_batch
from docllm.producer.retention.manifest import OUTAGES, ArchiveStore
from docllm.producer.retention.purge import lost_archive
from docllm.producer.retention.purge import purge as purge_batch
from docllm.producer.screen.live import bar
from docllm.producer.screen.output import CommandAnswer, agreed, answering, require_answer
from docllm.producer.text.printable import shown
from docllm.producer.text.times import moment, written
from docllm.schemas.errors import ConfigError, UnreachableError, UnsafeStateError
from docllm.schemas.objects.errors import ObjectError
from docllm.schemas.objects.output_stores import OutputStores
from docllm.schemas.objects.store import ObjectStores
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.executors import ThreadExecutor
from docllm.schemas.settings.config import Config
from docllm.schemas.task.states import Status
from docllm.schemas.text.wording import number_of

_NUMBERED = (Status.SUCCEEDED, Status.DEAD, Status.CANCELLED)


async def purge(config: Config, options: argparse.Namespace) -> int:
    """Purge the named batch, or all batches that are old enough and archived."""
    if (options.batch is None) == (options.older_than is None):
        raise ConfigError("name what to purge: either --batch NAME or --older-than 30d")
    if options.unarchived and options.batch is None:
        raise ConfigError("--unarchived loses results for ever; it needs the name of a --batch")
    if not options.dry_run:
        require_answer(options)
    executor = ThreadExecutor("archives")
    try:
        async with opened_ledger(config) as parts:
            await _purge_all(
                parts, OutputStores(executor=executor, objects=ObjectStores()), options
            )
    except ObjectError as error:
        raise (UnreachableError if error.fault in OUTAGES else ConfigError)(
            f"an archive cannot be read: {error}; mend that, and run it again to go on"
        ) from None
    finally:
        executor.close()
    return 0


async def _purge_all(parts: LedgerParts, store: ArchiveStore, options: argparse.Namespace) -> None:
    with answering(options) as answer:
        answer.put(dry_run=options.dry_run, batches=[])
        targets = await _targets(parts, store, options, answer)
        documents = [_tell(target, answer) for target in targets]
        tasks = sum(target.tasks for target in targets)
        question = f"delete all rows of {number_of(tasks, 'task')}?"
        if options.dry_run or not targets or not await agreed(options, question):
            answer.say("nothing is deleted")
            return
        for target, document in zip(targets, documents, strict=True):
            try:
                document["purged"] = await _purge(parts, store, target, options)
            except UnsafeStateError as error:
                if options.batch is not None:
                    raise
                answer.warn(f"left: {error}")
            else:
                purged = number_of(document["purged"], "task")
                answer.say(f"batch {shown(target.name)}: purged {purged}")


async def _targets(
    parts: LedgerParts, store: ArchiveStore, options: argparse.Namespace, answer: CommandAnswer
) -> Sequence[Purgeable]:
    """Return the batches to purge; say which others are left, and why.

    Raises UnsafeStateError for a batch that is named and may not be purged.
    """
    read, group = parts.transactions.read, options.group
    if options.batch is not None:
        named = await read(purge_rows.find, group, options.batch)
        if named is None:
            raise await read(no_batch, group, options.batch)
        if named.purged_at is not None:
            answer.say(f"batch {shown(named.name)}: it was purged at {written(named.purged_at)}")
            return ()
        candidates = [named]
    else:
        before = moment(options.older_than, await read(selection_query.now))
        candidates = await read(purge_rows.unchanged_since, group, before)
    targets = []
    for target in candidates:
        reason = await read(purge_rows.refusal, target, unarchived=options.unarchived)
        if not reason and not options.unarchived:
            reason = await lost_archive(store, target, reads=False)
        if reason and options.batch is not None:
            raise UnsafeStateError(f"batch {shown(target.name)}: {reason}")
        if reason:
            answer.warn(f"left: batch {target.name}: {reason}")
        else:
            targets.append(target)
    return targets


def _tell(target: Purgeable, answer: CommandAnswer) -> dict[str, Any]:
    """Say what would go, and whether it is archived; return that as a part of the document."""
    numbers = {status: target.counts.get(status, 0) for status in _NUMBERED}
    in_words = ", ".join(f"{number} {status.name.lower()}" for status, number in numbers.items())
    if target.is_archived and target.verified_at is not None:
        kept = f"archived at {shown(target.archived_to)}, verified {written(target.verified_at)}"
    else:
        kept = "NOT archived: what is deleted is lost"
    document = {
        "batch": target.name,
        "tasks": target.tasks,
        "purged": 0,
        "changed_at": written(target.changed_at),
        "archive": target.archived_to if target.is_archived else None,
    }
    answer.add("batches", document)
    answer.say(
        f"batch {shown(target.name)}: {number_of(target.tasks, 'task')} ({in_words}), "
        f"last changed {written(target.changed_at)}; {kept}"
    )
    return document


async def _purge(
    parts: LedgerParts, store: ArchiveStore, target: Purgeable, options: argparse.Namespace
) -> int:
    with bar(f"purging {target.name}") as progress:
        return await purge_batch(
            parts.transactions,
            SystemClock(),
            target,
            store=store,
            actor=actor(),
            unarchived=options.unarchived,
            rate=options.rate,
            progress=lambda count: progress.show(count, target.tasks),
        )
