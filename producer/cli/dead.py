"""`dead list`: lists dead tasks and records by their error."""

import argparse

from rich.text import Text

from docllm.producer.app import SCREEN_S, opened_ledger
from docllm.producer.cli.selection_options import read_selection
from docllm.producer.ledger.dead_letters.error_groups import ErrorGroup, listed
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.retention.archive_sentence import archive_sentence
from docllm.producer.screen import dead_letters
from docllm.producer.screen.output import note, say, say_json, say_styled, width
from docllm.producer.text.printable import shown
from docllm.schemas.ledger.database import Connection
from docllm.schemas.settings.config import Config

GROUPS_SHOWN = 40


async def list_groups(config: Config, options: argparse.Namespace) -> int:
    """List the selected dead letters in groups of one error."""

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
    return 0
