"""`archive --adopt`: marks a batch as archived by an archive unknown to the ledger."""

import argparse

from docllm.producer.app import opened_ledger
from docllm.producer.cli.cancel import actor
from docllm.producer.ledger import store
from docllm.producer.ledger.retention import archive_rows
from docllm.producer.retention.adopter import Adopter
from docllm.producer.retention.archive_search import manifests
from docllm.producer.retention.archiver import folder_name
from docllm.producer.screen.command_answer import answering
from docllm.producer.text.printable import shown
from docllm.schemas.errors import ConfigError, UnreachableError
from docllm.schemas.ledger.database import Connection
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.objects.store import ObjectStores
from docllm.schemas.outputs.stores import OutputStores
from docllm.schemas.runtime.executors import ThreadExecutor
from docllm.schemas.settings.config import Config
from docllm.schemas.text.wording import number_of

OUTAGES = frozenset({ObjectFault.OUTAGE, ObjectFault.DENIED, ObjectFault.NO_BUCKET})


async def adopt(config: Config, to: str, options: argparse.Namespace) -> int:
    """Adopt the newest archive of a batch below `to`."""
    name: str = options.batch
    executor = ThreadExecutor("archive")
    try:
        async with opened_ledger(config, connections=2) as parts:
            folder = folder_name(name, parts.ledger_id)
            stored = await manifests(to, parts.ledger_id, options.group, lambda its: its == folder)
            own = [(uri, manifest) for uri, manifest in stored if manifest.batch == name]
            if not own:
                raise ConfigError(
                    f"there is no archive of batch {name!r} of this ledger below {to}"
                )
            uri, manifest = own[-1]
            before = await parts.transactions.read(_covering, name)
            adopter = Adopter(
                transactions=parts.transactions,
                executor=executor,
                store=OutputStores(executor=executor, objects=ObjectStores()),
            )
            ended = 0 if before else await adopter.adopt(options.group, uri, manifest, actor())
    except ObjectError as error:
        raise (UnreachableError if error.fault in OUTAGES else ConfigError)(
            f"{error}; nothing is adopted, run it again to go on"
        ) from None
    finally:
        executor.close()
    tasks, at = manifest.contents().tasks, before.uri if before else uri
    with answering(options) as answer:
        answer.put(batch=name)
        answer.say(
            f"batch {shown(name)} is archived at {at}: {number_of(tasks, 'task')}; "
            f"{number_of(ended, 'open task')} ended here",
            uri=at,
            format=manifest.format,
            tasks=tasks,
            ended=ended,
            archived_before=before is not None,
        )
    return 0


def _covering(connection: Connection, name: str) -> archive_rows.Archive | None:
    target = store.find_batch(connection, name)
    return None if target is None else archive_rows.covering(connection, target.id)
