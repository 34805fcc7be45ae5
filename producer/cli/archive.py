"""`archive`: writes a finished batch to files, verifies them, and marks it as archived."""

import argparse

from docllm.producer.app import LedgerParts, opened_ledger
from docllm.producer.cli.cancel import actor
from docllm.producer.ledger import store, tally
from docllm.producer.ledger.retention import archive_rows
from docllm.producer.ledger.store import Batch
from docllm.producer.retention.archiver import Archiver, require_folder
from docllm.producer.retention.formats import ArchiveFormat
from docllm.producer.retention.manifest import OUTAGES, ArchiveStore, archive_fault
from docllm.producer.screen.live import bar
from docllm.producer.screen.output import CommandAnswer, answering
from docllm.producer.text.pace import PaceMeter, left_text, rate_text
from docllm.producer.text.printable import shown
from docllm.schemas.errors import ConfigError, UnreachableError
from docllm.schemas.objects.errors import ObjectError
from docllm.schemas.objects.output_stores import OutputStores
from docllm.schemas.objects.store import ObjectStores
from docllm.schemas.objects.write_once import WriteOnceStore
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.executors import Executor, ThreadExecutor
from docllm.schemas.settings.config import Config
from docllm.schemas.text.wording import number_of


async def archive(config: Config, options: argparse.Namespace) -> int:
    """Archive a batch, unless it has an archive there as it is."""
    to = options.to or config.retention.archive
    if to is None:
        raise ConfigError(
            "name where the archive goes: --to DIR or --to s3://BUCKET/FOLDER/, or set archive in "
            "[retention]"
        )
    require_folder(to)
    executor = ThreadExecutor("archive")
    files = OutputStores(executor=executor, objects=ObjectStores(), allow=[to])
    try:
        async with opened_ledger(config, connections=2) as parts:
            read = parts.transactions.read
            target = await read(store.require_batch, options.group, options.batch)
            with answering(options) as answer:
                answer.put(batch=target.name)
                if not await _was_archived(parts, target, to, files, options, answer):
                    await _archive(
                        parts, target, _archiver(parts, to, executor, files, options), answer
                    )
    except ObjectError as error:
        raise (UnreachableError if error.fault in OUTAGES else ConfigError)(
            f"{error}; nothing is marked as archived, run it again to go on"
        ) from None
    finally:
        executor.close()
    return 0


async def _was_archived(
    parts: LedgerParts,
    target: Batch,
    to: str,
    files: ArchiveStore,
    options: argparse.Namespace,
    answer: CommandAnswer,
) -> bool:
    """Return whether the batch has such an archive; it is looked for, and said to be there."""
    newest = await parts.transactions.read(archive_rows.covering, target.id)
    if newest is None or not newest.uri.startswith(to) or newest.format != options.format:
        return False
    if fault := await archive_fault(files, newest.uri, newest.digest, reads=True):
        answer.warn(f"batch {target.name}: of its archive, {fault}")
        return False
    answer.say(
        f"batch {shown(target.name)} is archived already: {number_of(newest.tasks, 'task')} "
        f"at {newest.uri}",
        uri=newest.uri,
        format=newest.format,
        tasks=newest.tasks,
        archived_before=True,
    )
    return True


def _archiver(
    parts: LedgerParts,
    to: str,
    executor: Executor,
    files: WriteOnceStore,
    options: argparse.Namespace,
) -> Archiver:
    return Archiver(
        transactions=parts.transactions,
        executor=executor,
        store=files,
        ledger_id=parts.ledger_id,
        to=to,
        file_format=ArchiveFormat(options.format),
    )


async def _archive(
    parts: LedgerParts, target: Batch, archiver: Archiver, answer: CommandAnswer
) -> None:
    total = await parts.transactions.read(tally.loaded, target.id)
    with bar(f"archiving {target.name}") as shown_bar:
        meter, clock = PaceMeter(), SystemClock()

        def show(done: int) -> None:
            meter.see(done, clock.now_s())
            facts = (rate_text(meter.per_s), left_text(meter.left_s(max(0, 2 * total - done))))
            shown_bar.show(done, 2 * total, "  ".join(filter(None, facts)))

        archive, manifest = await archiver.archive(target, actor(), show)
    contents = manifest.contents()
    tasks, files = number_of(contents["tasks"], "task"), number_of(contents["files"], "file")
    answer.say(
        f"batch {shown(target.name)} is archived at {archive.uri}: {tasks} in {files}, "
        f"{contents['bytes']:,} bytes, read back and compared",
        uri=archive.uri,
        format=archive.format,
        **contents | {"digest": contents["digest"].hex()},
        archived_before=False,
    )
