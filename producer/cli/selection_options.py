"""Reads the options that select dead letters or batches, the same for every command."""

import argparse
from collections.abc import Sequence
from datetime import datetime

from docllm.producer.app import LedgerParts
from docllm.producer.ledger import store
from docllm.producer.ledger.dead_letters.selection import RECORD, Selection
from docllm.producer.ledger.dead_letters.selection_query import now
from docllm.producer.ledger.retention import archive_rows
from docllm.producer.text.times import moment
from docllm.schemas.errors import ConfigError
from docllm.schemas.ledger.database import Connection

_MAX_DIGITS = 18


def read_selection(connection: Connection, options: argparse.Namespace) -> Selection:
    """Return the selection that the options mean, with times by the database's clock.

    Raises ConfigError, also if the group has no such batch.
    """
    batch = None if options.batch is None else store.find_batch(connection, options.batch)
    if options.batch is not None and (batch is None or batch.group != options.group):
        raise store.no_batch(connection, options.group, options.batch)
    return selection(options, now(connection))


def selection(options: argparse.Namespace, now_utc: datetime) -> Selection:
    """Return the selection that the options mean; `now_utc` has no zone.

    Raises ConfigError.
    """
    record = record_number(options.id) if options.id is not None and options.batch is None else None
    return Selection(
        dispositions=tuple(dict.fromkeys(options.disposition or ())),
        fingerprint=None if options.fingerprint is None else options.fingerprint.lower(),
        batch=options.batch,
        type=options.type,
        tenant=options.tenant,
        since=None if options.since is None else moment(options.since, now_utc),
        until=None if options.until is None else moment(options.until, now_utc),
        key=options.id if record is None else None,
        record=record,
        limit=options.limit,
        cancelled=getattr(options, "cancelled", False),
    )


def record_number(name: str) -> int | None:
    """Return N of `quarantine:N`, None for a task's id."""
    digits = name.removeprefix(RECORD)
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS
    return int(digits) if digits != name and is_number else None


def several(key: str, batches: Sequence[str]) -> str:
    """Return the error for an id that several batches have, where one task is required."""
    return (
        f"{len(batches)} batches have a task {key!r}: {', '.join(batches)}; name one with --batch"
    )


def no_task(options: argparse.Namespace) -> str:
    """Return the error for an id that no task of the group has."""
    return (
        f"no task {options.id!r} in a batch of group {options.group}; see: "
        f"docllm status --group {options.group}"
    )


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
