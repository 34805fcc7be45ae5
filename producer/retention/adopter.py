"""Adopts an archive: compares its files with the ledger, then marks the batch as archived.

After a backup was restored, tasks may be open here that the archive has as done: they are ended.
"""

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import orjson

from docllm.producer.ledger import store
from docllm.producer.ledger.batch_ids import id_range
from docllm.producer.ledger.retention import adoption_rows, archive_rows
from docllm.producer.ledger.retention.adoption_rows import Adoptable, LedgerTask
from docllm.producer.ledger.store import Batch
from docllm.producer.retention import formats
from docllm.producer.retention.archiver import ArchiveAlteredError
from docllm.producer.retention.formats import ArchiveFormat
from docllm.producer.retention.manifest import MAX_BYTES, NAME, ArchiveFile, Manifest, ManifestError
from docllm.producer.text.printable import shown
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.objects.write_once import WriteOnceStore
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.task.result.answer import readable
from docllm.schemas.task.states import Status
from docllm.schemas.text.untrusted import contained, describe_error


@dataclass(frozen=True, slots=True)
class _Archived:
    digest: bytes
    status: Status


class Adopter:
    """Adopts the archives of one group's batches."""

    def __init__(
        self, *, transactions: Transactions, executor: Executor, store: WriteOnceStore
    ) -> None:
        self._transactions = transactions
        self._executor = executor
        self._store = store

    async def adopt(self, group: str, uri: str, manifest: Manifest, actor: str) -> int:
        """Mark the manifest's batch as archived at `uri`, end its open tasks; return how many.

        A batch that the ledger does not have is made, without tasks. Interrupted, the same call
        goes on. Raises ArchiveAlteredError, and changes nothing, if a file is damaged, or if the
        batch has a task that the archive does not have as it is; UnsafeStateError if the batch
        changes meanwhile; and ObjectError.
        """
        target = await self._transactions.read(store.find_batch, manifest.batch)
        if target is None or not await self._transactions.read(
            adoption_rows.is_begun, target.id, uri
        ):
            target = await self._begin((group, manifest.batch), target, uri, manifest, actor)
        ended = 0
        while count := await self._transactions.write(adoption_rows.end_page, target.id):
            ended += count
        if await self._transactions.read(archive_rows.covering, target.id) is None:
            await self._transactions.write(adoption_rows.finish, target.id)
        return ended

    async def _begin(
        self,
        named: tuple[str, str],
        target: Batch | None,
        uri: str,
        manifest: Manifest,
        actor: str,
    ) -> Batch:
        compared_at = await self._transactions.read(adoption_rows.now)
        contents = replace(manifest.contents(), digest=await self._digest(uri, manifest))
        await self._compare(target, uri, manifest)
        made_by = (manifest.schema, manifest.docllm)
        taken = Adoptable(uri, manifest.format, made_by, contents)
        return await self._transactions.write(adoption_rows.adopt, named, taken, compared_at, actor)

    async def _digest(self, uri: str, manifest: Manifest) -> bytes:
        """Return the SHA-256 of the stored manifest, which another version may have written."""
        stored = await self._store.get(f"{uri}{NAME}", limit=MAX_BYTES)
        try:
            is_same = Manifest.of_stored(stored) == manifest
        except ManifestError:
            is_same = False
        if not is_same:
            raise ArchiveAlteredError(
                f"{uri}{NAME} changed while it was read; nothing is adopted, run it again"
            )
        return hashlib.sha256(stored).digest()

    async def _compare(self, target: Batch | None, uri: str, manifest: Manifest) -> None:
        """Read all files. Raises ArchiveAlteredError unless they have all of the batch's tasks."""
        batch_id = 0 if target is None else target.id
        ids = await self._transactions.read(id_range, batch_id)
        in_archive = bytearray(ids[1] - ids[0] + 1)
        for file in manifest.files:
            at = f"{uri}{file.name}"
            if "/" in file.name:
                raise ArchiveAlteredError(f"{shown(at)} is not in the archive; nothing is adopted")
            content = await self._store.get(at, limit=file.bytes)
            try:
                tasks = await self._executor(partial(_tasks, file, manifest.format, content))
            except _DamagedError as error:
                raise ArchiveAlteredError(f"{at} {error}; nothing is adopted") from None
            keys = sorted(tasks)
            for start in range(0, len(keys), adoption_rows.PAGE):
                page = keys[start : start + adoption_rows.PAGE]
                for stored in await self._transactions.read(adoption_rows.of_keys, batch_id, page):
                    _require_same(stored, tasks[stored.key], at)
                    if ids[0] <= stored.id <= ids[1]:
                        in_archive[stored.id - ids[0]] = 1
        missing = await self._transactions.read(adoption_rows.missing, batch_id, ids, in_archive)
        if missing is not None:
            raise ArchiveAlteredError(
                f"the archive {uri} lacks task {shown(readable(missing))} of the batch; nothing "
                "is adopted. Archive the batch anew when its tasks are final"
            )


class _DamagedError(Exception):
    """A file that is not what its manifest says; the text says how."""


def _tasks(file: ArchiveFile, file_format: str, content: bytes) -> dict[bytes, _Archived]:
    """Return the tasks of a file by key. Raises _DamagedError."""
    if (len(content), hashlib.sha256(content).hexdigest()) != (file.bytes, file.sha256):
        raise _DamagedError("has other bytes than its manifest says")
    try:
        with contained():
            tasks = dict(_read(formats.lines_of(ArchiveFormat(file_format), content)))
    except Exception as error:  # noqa: BLE001 - the file may be anything
        raise _DamagedError(f"cannot be decoded: {describe_error(error)}") from None
    if len(tasks) != file.tasks:
        raise _DamagedError(f"has {len(tasks)} tasks, its manifest says {file.tasks}")
    return tasks


def _read(lines: Iterator[bytes]) -> Iterator[tuple[bytes, _Archived]]:
    for line in lines:
        task = orjson.loads(line)["task"]
        yield _bytes(task["task_key"]), _Archived(_bytes(task["digest"]), Status(task["status"]))


def _bytes(value: Any) -> bytes:
    """Return the bytes of a column, which are base64 in an archive if they are no text."""
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else str(value).encode()


def _require_same(here: LedgerTask, there: _Archived, at: str) -> None:
    """Raise ArchiveAlteredError if the archive would lose something that the ledger has."""
    name = shown(readable(here.key))
    if here.digest != there.digest:
        raise ArchiveAlteredError(f"task {name} has another line in {at}; nothing is adopted")
    if here.status is Status.SUCCEEDED and there.status is not Status.SUCCEEDED:
        raise ArchiveAlteredError(
            f"task {name} has a result here and none in {at}; nothing is adopted. Archive the "
            "batch anew when its tasks are final"
        )
