"""The test of `check` that says what the retention does, and looks for batches that came back.

After a backup was restored, the ledger may have batches that an archive has already.

Tested by tests/integration/test_archive.py.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

from producer.app import is_ledger_missing, opened_ledger
from producer.ledger import archives
from producer.retention.archiver import folder_name
from producer.retention.manifest import MOST_BYTES, NAME, Manifest, ManifestError
from producer.text.printable import shown
from schemas.errors import ConfigError, UnreachableError
from schemas.objects.address import is_object_uri
from schemas.objects.errors import ObjectError, ObjectFault
from schemas.objects.store import ObjectStores
from schemas.outputs.stores import OutputStores
from schemas.runtime.executors import ThreadExecutor
from schemas.settings.config import Config
from schemas.task.allowed_uris import uri_parts

_NAMED = 5
_PASSING = frozenset({ObjectFault.OUTAGE, ObjectFault.DENIED})


async def told(config: Config, group: str) -> str:
    """Return what agents archive and delete, and when.

    Raises ConfigError if the folder of archives cannot be used, and UnreachableError, which is no
    failure, if its store is away or if a batch is archived there and alive here.
    """
    to = config.retention.archive or ""
    try:
        back = await _back(config, group, to)
    except ObjectError as error:
        kind = UnreachableError if error.fault in _PASSING else ConfigError
        raise kind(str(error)) from None
    if back:
        names = ", ".join(shown(name) for name in back[:_NAMED])
        rest = f" and {len(back) - _NAMED} more" if len(back) > _NAMED else ""
        raise UnreachableError(
            f"these batches have an archive at {to} and are not archived here, as after a backup "
            f"was restored: {names}{rest}; if nothing of them shall run again, cancel and archive "
            "them once more"
        )
    return f"archives to {to}{_ages(config)}"


def _ages(config: Config) -> str:
    settings = config.retention
    ages_s = {
        "inputs": settings.inputs_s,
        "results": settings.results_s,
        "all rows": settings.dead_s,
    }
    given = [f"{what} after {age_s:,} s" for what, age_s in ages_s.items() if age_s is not None]
    deletes = f"deletes {', '.join(given)}" if given else "deletes nothing"
    return f" after {settings.least_s:,} s without a change; {deletes}"


async def _back(config: Config, group: str, to: str) -> list[str]:
    """Return the batches that are alive in the ledger and have a whole archive below `to`."""
    folders = await asyncio.to_thread(lambda: list(_folders(to)))
    if is_ledger_missing(config):
        return []
    async with opened_ledger(config) as parts:
        alive = await parts.transactions.read(archives.alive, group)
        by_folder = {folder_name(name, parts.ledger_id): name for name in alive}
        named = [name for name in folders if name.rpartition("-")[0] in by_folder]
        read = [await _manifest(f"{to}{name}/{NAME}") for name in named]
        found = {
            manifest.batch
            for manifest in read
            if manifest and (manifest.ledger, manifest.group) == (parts.ledger_id, group)
        }
        return [name for name in alive if name in found]


def _folders(to: str) -> Iterator[str]:
    """Yield the names of the folders with a manifest below `to`."""
    if is_object_uri(to):
        for entry in ObjectStores().entries(to):
            folder, _, name = entry.name.rpartition("/")
            if name == NAME:
                yield folder
        return
    path = Path("/", *uri_parts(to).segments)
    if not path.is_dir():
        raise ConfigError(f"the folder {path} does not exist; make it, or name another one")
    yield from (found.parent.name for found in path.glob(f"*/{NAME}"))


async def _manifest(uri: str) -> Manifest | None:
    """Return a manifest; None if it is not one, or has gone."""
    executor = ThreadExecutor("manifests")
    stores = OutputStores(executor=executor, objects=ObjectStores())
    try:
        return Manifest.of_stored(await stores.get(uri, limit=MOST_BYTES))
    except ManifestError:
        return None
    except ObjectError as error:
        if error.fault is ObjectFault.GONE:
            return None
        raise
    finally:
        executor.close()
