"""`dead`: lists dead tasks and records by error, and shows everything about one of them."""

import argparse
import shutil
import sys

from producer.app import SCREEN_S, opened_ledger
from producer.cli.selection_options import read_selection, record_number, several
from producer.ledger import history
from producer.ledger.dead_letters import Group, listed
from producer.ledger.selection import Selection
from producer.screen import dead_letters
from producer.screen.output import complain, note, say, say_json
from schemas.ledger.database import Connection
from schemas.runtime.next_command import with_config
from schemas.settings.config import Config

PIPED_WIDTH = 500
GROUPS_SHOWN = 40


DEAD = "Show dead letters and quarantined records, and why their tasks died."
LIST = (
    "Show groups of one error and disposition: how many, since when, at what cost, and an example."
)
SHOW = (
    "Show everything about one task or record: state, attempts with error, trace id and cost, "
    "dead letter, input."
)


async def list_groups(config: Config, options: argparse.Namespace) -> int:
    """List the selected dead letters in groups of one error."""

    def work(connection: Connection) -> tuple[Selection, list[Group]]:
        chosen = read_selection(connection, options)
        return chosen, listed(connection, options.group, chosen)

    async with opened_ledger(config, reads_s=SCREEN_S) as parts:
        chosen, found = await parts.transactions.read(work)
    if options.json:
        say_json(dead_letters.groups_json(options.group, found))
    elif not found:
        say(
            f"no dead letters in group {options.group}"
            + (f" with {chosen}" if chosen.narrows else "")
        )
    else:
        say("\n".join(dead_letters.groups_lines(found[:GROUPS_SHOWN], width())))
        if len(found) > GROUPS_SHOWN:
            note(f"... and {len(found) - GROUPS_SHOWN} more groups; --json shows all of them")
    return 0


async def show(config: Config, options: argparse.Namespace) -> int:
    """Show one task or record in any state; return 1 if the id is unknown or ambiguous."""
    async with opened_ledger(config, reads_s=SCREEN_S) as parts:
        found = await parts.transactions.read(_found, options)
    if isinstance(found, list):
        return _not_one(found, options)
    if options.json:
        say_json(
            dead_letters.story_json(found)
            if isinstance(found, history.Story)
            else dead_letters.record_json(found)
        )
    else:
        lines = (
            dead_letters.story_lines(found)
            if isinstance(found, history.Story)
            else dead_letters.record_lines(found)
        )
        say("\n".join(lines))
    return 0


def _found(
    connection: Connection, options: argparse.Namespace
) -> history.Story | history.QuarantinedRecord | list[str]:
    """Return what the ID names, or, if it does not name one task, the batches that contain it."""
    number = record_number(options.id) if options.batch is None else None
    if (
        number is not None
        and (record := history.record(connection, options.group, number)) is not None
    ):
        return record
    names = [
        name for name, _ in history.states(connection, options.group, options.id, options.batch)
    ]
    found = (
        history.story(connection, options.group, names[0], options.id) if len(names) == 1 else None
    )
    return names if found is None else found


def _not_one(names: list[str], options: argparse.Namespace) -> int:
    if not names:
        where = f"batch {options.batch!r}" if options.batch else f"group {options.group}"
        said = (
            f"no task {options.id!r} in {where}; see: "
            f"python -m producer dead list --group {options.group}"
        )
        complain(with_config(said, options.config))
        return 1
    complain(several(options.id, names))
    return 1


def width() -> int:
    """Return the terminal's width in columns, or a large width if the output is piped."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPED_WIDTH
