"""`dead list` and `dead hooks`: what died by its error, and the hooks that were given up."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from itertools import islice

from rich.text import Text

from docllm.producer.app import SCREEN_S, opened_ledger
from docllm.producer.cli.cancel import actor
from docllm.producer.cli.selection_options import read_selection
from docllm.producer.ledger import hook_orders
from docllm.producer.ledger.dead_letters import selected_pages
from docllm.producer.ledger.dead_letters.error_groups import ErrorGroup, listed
from docllm.producer.ledger.dead_letters.selected_pages import PAGE
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.hook_orders import GivenUp
from docllm.producer.ledger.retention.archive_rows import archive_sentence
from docllm.producer.ledger.tally import OTHER_FINGERPRINTS
from docllm.producer.screen import dead_letters
from docllm.producer.screen.output import (
    CommandAnswer,
    answering,
    note,
    say,
    say_json,
    say_styled,
    width,
)
from docllm.producer.text.printable import shown
from docllm.schemas.errors import ConfigError
from docllm.schemas.ledger.database import Connection
from docllm.schemas.runtime.next_command import with_config
from docllm.schemas.settings.config import Config
from docllm.schemas.task.hooks import HookEvent
from docllm.schemas.text.wording import number_of

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


async def given_up(config: Config, options: argparse.Namespace) -> int:
    """List the selected hooks that were given up; with --retry, order them anew."""
    event = None if options.event is None else HookEvent(options.event)
    with answering(options) as answer:
        async with opened_ledger(config, reads_s=SCREEN_S) as parts:
            transactions = parts.transactions
            kinds = await transactions.read(
                hook_orders.given_up_kinds, options.group, options.type, event
            )
            answer.put(hooks=[kind.as_json() for kind in kinds], retried=0)
            for kind in kinds:
                answer.say(f"{number_of(kind.count, 'hook')} {kind.name}: {shown(kind.failure)}")
            if options.retry:
                retried = 0
                for kind in kinds:
                    while ids := await transactions.read(
                        hook_orders.given_up_ids, options.group, kind
                    ):
                        retried += await transactions.write(
                            hook_orders.retry, options.group, kind, ids, actor()
                        )
                answer.put(retried=retried)
        _advise(options, kinds, answer)
    return 0


def _advise(options: argparse.Namespace, kinds: Sequence[GivenUp], answer: CommandAnswer) -> None:
    """Say what comes next."""
    if not kinds:
        answer.say(f"no hook of group {options.group} was given up")
    elif options.retry:
        advice = (
            "ordered again: an agent whose settings name them runs them within seconds; "
            f"to start one: docllm agent --group {options.group}"
        )
        answer.say(with_config(advice, options.config))
    else:
        advice = f"to run them again: docllm dead hooks --retry --group {options.group}"
        answer.say(with_config(advice, options.config))
