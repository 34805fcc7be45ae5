"""Purges one batch: reads its archive, marks it, deletes page by page, and notes the end.

It may be killed at any moment. The same call goes on where it was, since what is left is read from
the ledger.
"""

from collections.abc import Callable
from functools import partial

from docllm.producer.ledger.batch_ids import id_range
from docllm.producer.ledger.retention import purge_rows
from docllm.producer.ledger.retention.purge_rows import Purgeable
from docllm.producer.retention.manifest import ArchiveStore, archive_fault
from docllm.producer.retention.pages import Pages
from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.clock import Clock


async def purge(
    transactions: Transactions,
    clock: Clock,
    target: Purgeable,
    *,
    store: ArchiveStore,
    actor: str,
    unarchived: bool = False,
    just_verified: bool = False,
    rate: float | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> int:
    """Delete all rows of a batch; return the number of tasks that this call deleted.

    `store` has the batch's archive, which is not read if `unarchived`, and only listed if this
    process has `just_verified` it. `rate`: tasks a second at most. `progress` is told how many
    tasks are done. Raises UnsafeStateError, with the reason, if the batch may not be purged, or if
    tasks of it run again; ObjectError if the archive cannot be looked for.
    """
    reads = not just_verified
    if not unarchived and (reason := await lost_archive(store, target, reads=reads)):
        raise UnsafeStateError(f"batch {target.name}: {reason}")
    await transactions.write(purge_rows.begin_purge, target, actor, unarchived=unarchived)
    crash.reach("purge.marked")
    pages = Pages(clock, rate)
    next_id, last_id = await transactions.read(id_range, target.id)
    done = 0

    async def page(first_id: int, limit: int) -> tuple[int, int]:
        nonlocal done
        ids = (first_id, last_id)
        after, purged = await transactions.write_once(purge_rows.purge_page, target, ids, limit)
        crash.reach("purge.page_deleted")
        done += purged
        progress(done)
        return after, purged

    while next_id <= last_id:
        next_id = await pages.run(partial(page, next_id))
    if not await transactions.write(purge_rows.finish, target):
        raise UnsafeStateError(
            f"batch {target.name}: tasks of it run again and are kept; run the same command again "
            "when they are final"
        )
    return done


async def lost_archive(store: ArchiveStore, target: Purgeable, *, reads: bool) -> str:
    """Return why the archive of a batch no longer counts, and what to do; empty if it does.

    With `reads`, its files are read, not only listed. Raises ObjectError if nobody can tell.
    """
    if not target.is_archived:
        return ""
    fault = await archive_fault(store, target.archived_to, target.archive_digest, reads=reads)
    if not fault:
        return ""
    command = f"run: docllm archive {target.options} --to DIR, or "
    again = "" if target.is_purging else command  # a new archive would lack what is deleted already
    return (
        f"of its archive, {fault}; put the archive back, or {again}purge it with --unarchived to "
        "lose what is deleted"
    )
