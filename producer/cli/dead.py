"""`dead list`: lists dead tasks and records by their error, or their ids alone."""

import argparse
import shlex
import sys
from itertools import islice

from rich.text import Text

from docllm.producer.app import SCREEN_S, opened_ledger
from docllm.producer.cli.selection_options import read_selection
from docllm.producer.ledger.dead_letters import selected_pages
from docllm.producer.ledger.dead_letters.error_groups import ErrorGroup, listed
from docllm.producer.ledger.dead_letters.selected_pages import PAGE
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.retention.archive_rows import archive_sentence
from docllm.producer.ledger.tally import OTHER_FINGERPRINTS
from docllm.producer.screen import dead_letters
from docllm.producer.screen.output import note, say, say_json, say_styled, width
from docllm.producer.text.printable import shown
from docllm.schemas.errors import ConfigError
from docllm.schemas.ledger.database import Connection
from docllm.schemas.runtime.next_command import with_config
from docllm.schemas.settings.config import Config

GROUPS_SHOWN = 40


async def list_groups(config: Config, options: argparse.Namespace) -> int:
    """List the selected dead letters in groups of one error, or with --ids by their ids alone."""
    if options.ids:
        if options.json:
            raise ConfigError("--ids writes no JSON; leave out --ids or --json")
        return await _list_ids(config, options)

    def work(connection: Connection) -> tuple[Selection, list[ErrorGroup], str]:
        selection = read_selection(connection, options)
        examples = None if options.json else GROUPS_SHOWN
        groups = listed(connection, options.group, selection, examples)
        is_empty = not groups and selection.batch is not None
        words = archive_sentence(connection, str(selection.batch)) if is_empty else ""
        return selection, groups, words

    async with opened_ledger(config, reads_s=SCREEN_S) as parts:
        selection, groups, words = await parts.transactions.read(work)
    if options.json:
        say_json(dead_letters.groups_json(options.group, groups))
    elif not groups:
        say(
            f"no dead letters in group {options.group}"
            + (f" with {selection}" if selection.narrows else "")
        )
        if words:
            note(shown(words))
    else:
        say_styled(Text("\n").join(dead_letters.groups_text(groups[:GROUPS_SHOWN], width())))
        if len(groups) > GROUPS_SHOWN:
            note(f"... and {len(groups) - GROUPS_SHOWN} more groups; --json shows all of them")
        note(with_config(_next_commands(groups[0], options.group), options.config))
    return 0


def _next_commands(largest: ErrorGroup, group: str) -> str:
    """Return what to type next: to see one of the largest group, and to try that group again."""
    example = largest.example
    batch = f" --batch {shlex.quote(example.batch)}" if example.batch else ""
    of_error = f"--fingerprint {largest.fingerprint[: dead_letters.FINGERPRINT_SHOWN]}"
    if not largest.tasks or largest.fingerprint == OTHER_FINGERPRINTS.hex():
        of_error = f"--disposition {largest.disposition}"
    one = f"to see one:\n  docllm show {shlex.quote(example.id)}{batch} --group {group}\n"
    again = f"to try those of the first line again:\n  docllm replay {of_error} --group {group}"
    return f"{one if example.id else ''}{again} --dry-run"


async def _list_ids(config: Config, options: argparse.Namespace) -> int:
    """Write the ids of the selected tasks and records, one on each line, for other programs."""
    async with opened_ledger(config, reads_s=SCREEN_S) as parts:
        selection = await parts.transactions.read(read_selection, options)
        read = parts.transactions.database.run_singly
        ids = selected_pages.names(read, options.group, selection)
        as_written = shown if sys.stdout.isatty() else str
        while page := await parts.transactions.executor(lambda: [*islice(ids, PAGE)]):
            say("\n".join(map(as_written, page)))
    return 0
