"""`cancel`: ends a batch or a task that should not run."""

import argparse
import getpass
import os
import socket

from docllm.producer.app import LedgerParts, opened_ledger
from docllm.producer.cli.selection_options import no_task, several
from docllm.producer.ledger import cancel as cancels
from docllm.producer.ledger import store
from docllm.producer.screen.output import CommandAnswer, answering, fail
from docllm.producer.text.printable import shown
from docllm.schemas.errors import ConfigError
from docllm.schemas.ledger.database import Connection
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.next_command import with_config
from docllm.schemas.settings.config import Config
from docllm.schemas.task.states import WAITING, Status
from docllm.schemas.text.wording import number_of


async def cancel(config: Config, options: argparse.Namespace) -> int:
    """Cancel waiting tasks.

    Running attempts finish. A task that would wait again after its attempt ends as cancelled.
    """
    async with opened_ledger(config) as parts:
        if (options.id or options.batch) is None:
            raise ConfigError("name what to cancel: --batch NAME, or --id ID")
        if options.id is not None:
            return await _cancel_task(parts, options)
        with answering(options) as answer:
            return await _cancel_batch(parts, options, answer)


async def _cancel_batch(
    parts: LedgerParts, options: argparse.Namespace, answer: CommandAnswer
) -> int:
    name: str = options.batch
    batch = await _require_batch(parts, options)
    is_new = await parts.transactions.write(cancels.cancel_batch, batch, actor())
    crash.reach("cancel.marked")
    total, more_wait = 0, True
    while more_wait:
        count, more_wait = await parts.transactions.write(cancels.cancel_page, batch.id)
        crash.reach("cancel.page_cancelled")
        total += count
    note = "" if is_new else " (it was cancelled before)"
    answer.say(
        f"batch {name}{note}: {number_of(total, 'waiting task')} cancelled; "
        "running tasks finish and are not tried again; nothing can be loaded into the batch",
        batch=name,
        cancelled=total,
        cancelled_before=not is_new,
    )
    return 0


async def _cancel_task(parts: LedgerParts, options: argparse.Namespace) -> int:
    batch_id = (await _require_batch(parts, options)).id if options.batch else None

    def work(connection: Connection) -> list[tuple[str, Status]]:
        return cancels.cancel_one(connection, options.id.encode(), options.group, batch_id, actor())

    states = await parts.transactions.write(work)
    if not states:
        fail(options, with_config(no_task(options), options.config), id=options.id, batches=[])
        return 1
    if len(states) > 1:
        names = [name for name, _ in states]
        fail(options, several(options.id, names), id=options.id, batches=names)
        return 2
    ((name, before),) = states
    was, is_cancelled = before.name.lower(), before in WAITING
    end = "cancelled" if is_cancelled else f"not changed, it is {was}"
    with answering(options) as answer:
        answer.say(
            f"task {shown(options.id)} of batch {shown(name)}: {end}",
            batch=name,
            id=options.id,
            cancelled=int(is_cancelled),
            was=was,
        )
    return 0


async def _require_batch(parts: LedgerParts, options: argparse.Namespace) -> store.Batch:
    return await parts.transactions.read(store.require_batch, options.group, options.batch)


def actor() -> str:
    """Return the user's name and host, for the audit.

    In a container a user may have no name, and a user name need not be UTF-8.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}".encode("utf-8", "backslashreplace").decode()
