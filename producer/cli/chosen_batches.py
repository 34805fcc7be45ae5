"""The batches that `status` and `export` were asked for."""

import argparse

from docllm.producer.app import LedgerParts
from docllm.producer.ledger import store
from docllm.producer.ledger.retention import archive_rows
from docllm.schemas.errors import ConfigError


async def chosen_batches(parts: LedgerParts, options: argparse.Namespace) -> dict[int, str]:
    """Return the names of the selected batches by id. Raises ConfigError if there are none."""
    names = await parts.transactions.read(store.batches_of, options.group, options.batch)
    if not names and options.batch is None:
        if count := await parts.transactions.read(archive_rows.archived, options.group):
            raise ConfigError(
                f"all batches of group {options.group} are archived ({count:,}); name one with "
                f"--batch, see: docllm status --archived --group {options.group}"
            )
        raise ConfigError(
            f"group {options.group} has no batch yet; load one: "
            f"docllm load FILE --group {options.group}"
        )
    if not names:
        raise await parts.transactions.read(store.no_batch, options.group, options.batch)
    return names
