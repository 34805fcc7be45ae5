"""Finds the archives that lie below a folder or a prefix, by their manifests."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

from docllm.producer.retention.manifest import MAX_BYTES, NAME, Manifest, ManifestError
from docllm.schemas.errors import ConfigError
from docllm.schemas.objects.address import is_object_uri
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.objects.store import ObjectStores
from docllm.schemas.outputs.stores import OutputStores
from docllm.schemas.runtime.executors import ThreadExecutor
from docllm.schemas.task.allowed_uris import uri_parts


async def manifests(
    to: str, ledger_id: str, group: str, is_wanted: Callable[[str], bool]
) -> list[tuple[str, Manifest]]:
    """Return URI and manifest of the group's archives of this ledger, the oldest first.

    `is_wanted` is given the name of an archive's folder without its number, and says whether to
    read its manifest. Raises ConfigError without the folder, and ObjectError.
    """
    folders = await asyncio.to_thread(lambda: list(_folders(to)))
    archives = [
        (f"{to}{name}/", await _manifest(f"{to}{name}/{NAME}"))
        for name in folders
        if (stem := name.rpartition("-")[0]).endswith(f"-{ledger_id[:12]}") and is_wanted(stem)
    ]
    own = [
        (uri, manifest)
        for uri, manifest in archives
        if manifest is not None and (manifest.ledger, manifest.group) == (ledger_id, group)
    ]
    return sorted(own, key=lambda pair: str(pair[1].created_at))


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


def _folders(to: str) -> Iterator[str]:
    """Yield the names of the folders with a manifest below `to`."""
    if is_object_uri(to):
        for entry in ObjectStores().entries(to):
            folder, _, name = entry.name.rpartition("/")
            if name == NAME:
                yield folder
        return
    require_folder(to)
    path = Path("/", *uri_parts(to).segments)
    yield from (manifest.parent.name for manifest in path.glob(f"*/{NAME}"))


async def _manifest(uri: str) -> Manifest | None:
    """Return a manifest; None if it is not one, or has gone."""
    executor = ThreadExecutor("manifests")
    stores = OutputStores(executor=executor, objects=ObjectStores())
    try:
        return Manifest.of_stored(await stores.get(uri, limit=MAX_BYTES))
    except ManifestError:
        return None
    except ObjectError as error:
        if error.fault is ObjectFault.MISSING:
            return None
        raise
    finally:
        executor.close()
