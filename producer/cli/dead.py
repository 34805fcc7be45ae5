"""`dead`: lists dead tasks and records by error, and shows everything about one of them."""

import argparse

from rich.text import Text

from docllm.producer.app import SCREEN_S, opened_ledger
from docllm.producer.cli.selection_options import read_selection, record_number, several
from docllm.producer.ledger import task_story
from docllm.producer.ledger.dead_letters.error_groups import ErrorGroup, listed
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.retention.archive_sentence import archive_sentence
from docllm.producer.screen import dead_letters
from docllm.producer.screen.command_answer import fail
from docllm.producer.screen.output import note, say, say_json, say_styled, width
from docllm.producer.text.printable import shown
from docllm.schemas.ledger.database import Connection
from docllm.schemas.runtime.next_command import with_config
from docllm.schemas.settings.config import Config
from docllm.schemas.task.record.trace import trace_of

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


async def show(config: Config, options: argparse.Namespace) -> int:
    """Show one task or record in any state; return 1 if the id is unknown or ambiguous."""
    async with opened_ledger(config, reads_s=SCREEN_S) as parts:
        subject = await parts.transactions.read(_read_subject, options)
        words = await parts.transactions.read(archive_sentence, options.batch or "")
    if isinstance(subject, list):
        return _complain_not_one(subject, options, words)
    if isinstance(subject, task_story.Story):
        trace_id = trace_of(parts.ledger_id, subject.number).hex()
        link, is_traced = config.otel.link(trace_id), config.otel.endpoint is not None
        document = dead_letters.story_json(subject) | {"otel_trace_id": trace_id, "otel_link": link}
        lines = [*dead_letters.story_lines(subject)]
        if link or is_traced:
            lines.append(dead_letters.trace_line(trace_id, link))
    else:
        document = dead_letters.record_json(subject)
        lines = [*dead_letters.record_lines(subject)]
    if options.json:
        say_json(document)
    else:
        say("\n".join(lines))
    return 0


def _read_subject(
    connection: Connection, options: argparse.Namespace
) -> task_story.Story | task_story.QuarantinedRecord | list[str]:
    """Return what the ID names, or, if it does not name one task, the batches that contain it."""
    number = record_number(options.id) if options.batch is None else None
    record = None if number is None else task_story.record(connection, options.group, number)
    if record is not None:
        return record
    states = task_story.states(connection, options.group, options.id, options.batch)
    names = [name for name, _ in states]
    if len(names) != 1:
        return names
    return task_story.story(connection, options.group, names[0], options.id) or names


def _complain_not_one(names: list[str], options: argparse.Namespace, words: str) -> int:
    if not names:
        where = f"batch {options.batch!r}" if options.batch else f"group {options.group}"
        advice = (
            f"no task {options.id!r} in {where}; see: "
            f"docllm dead list --group {options.group}" + (f"; {words}" if words else "")
        )
        fail(options, with_config(advice, options.config), id=options.id, batches=names)
        return 1
    fail(options, several(options.id, names), id=options.id, batches=names)
    return 1
