"""`archive --adopt`: marks a batch as archived by an archive unknown to the ledger.

Tested by tests/integration/commands/test_archive.py.
"""

import argparse

from producer.app import opened_ledger
from producer.cli.cancel import actor
from producer.ledger import store
from producer.ledger.retention import archive_rows
from producer.retention.adopter import Adopter
from producer.retention.archive_search import manifests
from producer.retention.archiver import folder_name
from producer.screen.command_answer import answering
from producer.text.printable import shown
from schemas.errors import ConfigError, UnreachableError
from schemas.ledger.database import Connection
from schemas.objects.errors import ObjectError, ObjectFault
from schemas.objects.store import ObjectStores
from schemas.outputs.stores import OutputStores
from schemas.runtime.executors import ThreadExecutor
from schemas.settings.config import Config
from schemas.text.wording import number_of

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
