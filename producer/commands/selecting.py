"""The options by which a person names dead letters, the same for every command that takes them."""

import argparse
import math
from collections.abc import Callable
from datetime import datetime

from producer.moments import moment
from producer.selected import now
from producer.selection import DISPOSITIONS, RECORD, Selection
from producer.store import find_batch
from schemas.database import Connection
from schemas.errors import ConfigError

_MOST_DIGITS = 18


def add_selection(parser: argparse.ArgumentParser, count: Callable[[str], int]) -> None:
    """Add the options; `count` reads a whole number above 0."""
    add = parser.add_argument
    add("--disposition", action="append", choices=DISPOSITIONS, metavar="D", help=f"why: {', '.join(DISPOSITIONS)}; may be repeated")
    add("--fingerprint", metavar="HEX", help="the error, as `dead list` shows it; its first 6 digits suffice")
    add("--batch", type=written, metavar="NAME", help="tasks of this batch")
    add("--type", type=written, metavar="TYPE", help="tasks of this type")
    add("--tenant", type=written, metavar="NAME", help="tasks of this tenant")
    add("--since", metavar="TIME", help="died since then: 2h, '3d ago', 2026-01-31, 2026-01-31T08:00Z")
    add("--until", metavar="TIME", help="died before then")
    add("--id", type=written, metavar="ID", help="the task of this id, or the record quarantine:N")
    add("--limit", type=count, metavar="N", help="the first N of them")


def written(text: str) -> str:
    """Return a text that a ledger can hold; raise what argparse shows for one that is no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not UTF-8") from None
    return text


def per_second(text: str) -> float:
    """Return N of `N/s` or `N`; raise what argparse shows for what is no number above 0."""
    try:
        found = float(text.removesuffix("/s"))
    except ValueError:
        found = 0.0
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate; write for example 50/s or 0.5/s")
    return found


def read_selection(connection: Connection, options: argparse.Namespace) -> Selection:
    """Return what the options mean, times by the database's clock. Raises ConfigError, also for a batch that the group has not."""
    found = None if options.batch is None else find_batch(connection, options.batch)
    if options.batch is not None and (found is None or found.group != options.group):
        raise ConfigError(f"group {options.group} has no batch {options.batch!r}; see: python -m producer status --group {options.group}")
    return selection(options, now(connection))


def selection(options: argparse.Namespace, at: datetime) -> Selection:
    """Return what the options mean; `at` is the present, UTC without a zone.

    Raises ConfigError.
    """
    record = record_number(options.id) if options.id is not None and options.batch is None else None
    return Selection(
        dispositions=tuple(dict.fromkeys(options.disposition or ())),
        fingerprint=(options.fingerprint or "").lower(),
        batch=options.batch,
        type=options.type,
        tenant=options.tenant,
        since=options.since and moment(options.since, at),
        until=options.until and moment(options.until, at),
        key=options.id if record is None else None,
        record=record,
        limit=options.limit,
        cancelled=getattr(options, "cancelled", False),
    )


def record_number(name: str) -> int | None:
    """Return N of `quarantine:N`, None for the id of a task."""
    digits = name.removeprefix(RECORD)
    return int(digits) if digits != name and digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS else None
