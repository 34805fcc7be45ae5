"""Archives a batch: writes its files and the manifest, reads all back, then marks the batch.

An interrupted run is continued: files that are there with the same bytes serve. Nothing is ever
overwritten, and each archive has a folder of its own, whose name has the ledger and its number.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from docllm.producer.ledger.results.export import id_groups
from docllm.producer.ledger.retention import archive_lines, archive_rows
from docllm.producer.ledger.retention.archive_lines import ArchiveLine
from docllm.producer.ledger.retention.archive_rows import Archive
from docllm.producer.ledger.store import Batch
from docllm.producer.retention import formats
from docllm.producer.retention.formats import ArchiveFormat
from docllm.producer.retention.manifest import NAME, ArchiveFile, Manifest
from docllm.schemas.errors import ConfigError, UnsafeStateError
from docllm.schemas.ledger.migrations import own_revision
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.objects.write_once import WriteOnceStore, put_once, safe_name
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.task.allowed_uris import uri_parts
from docllm.schemas.task.states import Status
from docllm.schemas.text.untrusted import contained, describe_error
from docllm.schemas.version import VERSION

# Of lines in one file, which is in memory while it is written.
MAX_TASKS = 250_000
MAX_BYTES = 64 << 20


@dataclass(kw_only=True, eq=False)
class Archiver:
    """Archives batches below one folder, `to`, a URI that ends with a slash."""

    transactions: Transactions
    executor: Executor
    store: WriteOnceStore
    ledger_id: str
    to: str
    file_format: ArchiveFormat = ArchiveFormat.JSONL
    max_tasks: int = MAX_TASKS

    async def archive(
        self, target: Batch, actor: str, progress: Callable[[int], None] = lambda _tasks: None
    ) -> tuple[Archive, Manifest]:
        """Archive a batch and mark it; return the archive and its manifest.

        `progress` hears how many tasks were written, then how many were compared, in one count.
        Raises UnsafeStateError if the batch is not final or changes meanwhile, or if a file is not
        what was written; and ObjectError.
        """
        formats.require_library(self.file_format)
        while True:
            archive = await self.transactions.write(
                archive_rows.begin,
                target,
                folder=f"{self.to}{folder_name(target.name, self.ledger_id)}-",
                file_format=self.file_format.value,
                made_by=(own_revision(), VERSION),
            )
            crash.reach("archive.begun")
            manifest = await self._write(target, archive, progress)
            if manifest is not None:
                break
            await self.transactions.write(archive_rows.give_up, archive.id)
        await self._verify(target, archive, manifest, progress)
        crash.reach("archive.verified")
        contents = manifest.contents()
        if not await self.transactions.write(archive_rows.finish, target, archive, contents, actor):
            raise UnsafeStateError(
                f"batch {target.name!r} changed while it was archived; archive it again"
            )
        crash.reach("archive.marked")
        return archive, manifest

    async def _write(
        self, target: Batch, archive: Archive, progress: Callable[[int], None]
    ) -> Manifest | None:
        """Write files and manifest; None if the folder has a file with other content."""
        files: list[ArchiveFile] = []
        lines = self._lines(target.id)
        done = 0
        while made_file := await self.executor(
            partial(encoded, self.file_format, lines, self.max_tasks, len(files) + 1)
        ):
            content, file = made_file
            if not await put_once(self.store, f"{archive.uri}{file.name}", content):
                return None
            crash.reach("archive.file_written")
            files.append(file)
            done += file.tasks
            progress(done)
        manifest = Manifest(
            group=target.group,
            batch=target.name,
            batch_id=target.id,
            ledger=self.ledger_id,
            archive=archive.id,
            format=self.file_format.value,
            schema=own_revision(),
            docllm=VERSION,
            created_at=f"{archive.created_at.isoformat()}Z",
            files=tuple(files),
        )
        if not await put_once(self.store, f"{archive.uri}{NAME}", manifest.stored()):
            return None
        crash.reach("archive.manifest_written")
        return manifest

    async def _verify(
        self, target: Batch, archive: Archive, manifest: Manifest, progress: Callable[[int], None]
    ) -> None:
        """Read all files back and compare them with the ledger. Raises UnsafeStateError."""
        stored = manifest.stored()
        if await self.store.get(f"{archive.uri}{NAME}", limit=len(stored)) != stored:
            raise UnsafeStateError(f"{archive.uri}{NAME} is not as it was written")
        done = manifest.contents()["tasks"]
        for file in manifest.files:
            uri = f"{archive.uri}{file.name}"
            content = await self.store.get(uri, limit=file.bytes)
            lines = self._lines(target.id, (file.first_task, file.last_task))
            fault = await self.executor(partial(difference, file, self.file_format, content, lines))
            if fault:
                raise UnsafeStateError(
                    f"{uri} {fault}; nothing is marked as archived; archive the batch again"
                )
            done += file.tasks
            progress(done)

    def _lines(self, batch_id: int, within: tuple[int, int] | None = None) -> Iterator[ArchiveLine]:
        read = self.transactions.database.run_singly
        for ids in id_groups(read, batch_id, within):
            yield from read(partial(archive_lines.read_lines, ids=ids))


def require_folder(to: str) -> None:
    """Raise ConfigError if the URI names no folder of this machine that can be used."""
    parts = uri_parts(to)
    if parts.scheme != "file":
        return
    path = Path("/", *parts.segments)
    try:
        fault = "" if path.is_dir() else "is a file" if path.exists() else "does not exist"
    except OSError as error:  # the name is too long, or a folder above it is closed to docllm
        fault = f"cannot be used: {error.strerror}"
    if fault:
        raise ConfigError(
            f"the folder {path} for archives {fault}; make it, or name another folder"
        )


def folder_name(batch: str, ledger_id: str) -> str:
    """Return a name that is safe in paths and keys; the ledger's id keeps ledgers apart."""
    return f"{safe_name(batch) or 'batch'}-{ledger_id[:12]}"


def encoded(
    file_format: ArchiveFormat, lines: Iterator[ArchiveLine], max_tasks: int, number: int
) -> tuple[bytes, ArchiveFile] | None:
    """Return the bytes of the next file and its entry in the manifest; None if no line is left.

    No more lines are read than the file has, and none of them is kept.
    """
    writer, digest = formats.writer(file_format), hashlib.sha256()
    statuses: Counter[Status] = Counter()
    size = first_id = last_id = 0
    for line in lines:
        writer.add(line.raw)
        digest.update(line.raw)
        statuses[line.status] += 1
        size += len(line.raw)
        first_id, last_id = first_id or line.task_id, line.task_id
        if statuses.total() >= max_tasks or size >= MAX_BYTES:
            break
    if not statuses:
        return None
    content = writer.content()
    return content, ArchiveFile(
        name=f"part-{number:05}.{formats.suffix(file_format)}",
        bytes=len(content),
        tasks=statuses.total(),
        results=statuses[Status.SUCCEEDED],
        dead=statuses[Status.DEAD],
        first_task=first_id,
        last_task=last_id,
        sha256=hashlib.sha256(content).hexdigest(),
        lines_sha256=digest.hexdigest(),
    )


def difference(
    file: ArchiveFile, file_format: ArchiveFormat, content: bytes, ledger: Iterator[ArchiveLine]
) -> str:
    """Return how a file differs from the written bytes or from the ledger; empty if it is equal."""
    if (len(content), hashlib.sha256(content).hexdigest()) != (file.bytes, file.sha256):
        return "has other bytes than were written"
    count, digest = 0, hashlib.sha256()
    try:
        with contained():
            for line in formats.lines_of(file_format, content):
                count += 1
                digest.update(line)
    except Exception as error:  # noqa: BLE001 - the file may be damaged in any way
        return f"cannot be decoded: {describe_error(error)}"
    expected, tasks = hashlib.sha256(), 0
    for task in ledger:
        tasks += 1
        expected.update(task.raw)
    if count != tasks:
        return f"has {count} tasks, the ledger has {tasks}"
    return "" if digest.digest() == expected.digest() else "has other content than the ledger"
