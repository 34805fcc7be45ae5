"""What the ledger knows of a load before it begins: clashing ids and types."""

import argparse
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from docllm.producer.app import LedgerParts, is_ledger_missing, opened_ledger
from docllm.producer.ledger import store
from docllm.producer.ledger.new_tasks import NewTask
from docllm.producer.ledger.status import reported_types
from docllm.producer.loading.preflight import Ask
from docllm.producer.screen.output import note
from docllm.schemas.errors import UnreachableError, UnsafeStateError
from docllm.schemas.settings.config import Config


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """What the ledger knows of a load: how its ids clash (`ask`), and the types of its agents.

    `ask` is None if nothing can clash, as before the first load.
    """

    ask: Ask | None = None
    types: frozenset[str] = frozenset()


@asynccontextmanager
async def ledger_facts(
    config: Config, options: argparse.Namespace, batch: str
) -> AsyncIterator[LedgerFacts]:
    """Yield what the ledger knows; create nothing.

    A dry run goes on without a ledger that does not answer: it only estimates, and no result
    depends on it.
    """
    if is_ledger_missing(config):
        yield LedgerFacts()
        return
    async with AsyncExitStack() as stack:
        try:
            ledger = await stack.enter_async_context(opened_ledger(config))
        except (UnreachableError, UnsafeStateError) as error:
            if not options.dry_run:
                raise
            note(
                "ids are not compared with those of the ledger, and the types that only agents "
                f"know are missing: {error}"
            )
            yield LedgerFacts()
            return
        yield LedgerFacts(
            await _clash_finder(ledger, batch, options.group),
            await ledger.transactions.read(reported_types.read_types, options.group),
        )


async def _clash_finder(ledger: LedgerParts, batch: str, group: str) -> Ask | None:
    into = await ledger.transactions.read(store.own_batch, batch, group, store.Origin.LOAD)
    if into is None:
        return None

    async def ask(tasks: Sequence[NewTask]) -> store.Accepted:
        return await ledger.transactions.read(store.matching, into, tasks)

    return ask
