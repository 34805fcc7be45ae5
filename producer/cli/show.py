"""`show`: shows everything about one task or one quarantined record."""

import argparse
import shlex
from typing import Any

import orjson

from docllm.producer.app import SCREEN_S, LedgerParts, opened_ledger
from docllm.producer.cli.selection_options import record_number, several
from docllm.producer.ledger import task_story
from docllm.producer.ledger.results import export
from docllm.producer.ledger.results.output_reader import OutputReader
from docllm.producer.ledger.results.pointed_results import follow
from docllm.producer.ledger.retention.archive_rows import archive_sentence
from docllm.producer.ledger.task_story import QuarantinedRecord, Story
from docllm.producer.screen import task_page
from docllm.producer.screen.output import fail, note, say, say_json
from docllm.producer.text.printable import shown
from docllm.schemas.ledger.database import Connection
from docllm.schemas.runtime.next_command import with_config
from docllm.schemas.settings.config import Config
from docllm.schemas.task.record.trace import trace_of
from docllm.schemas.task.result.answer import read_result
from docllm.schemas.task.states import Status
from docllm.schemas.text.untrusted import contained, describe_error

_UNKNOWN, _AMBIGUOUS = 1, 2


async def show(config: Config, options: argparse.Namespace) -> int:
    """Show one task or record in any state.

    Return 1 if no task has the id, 2 if tasks of several batches have it.
    """
    async with opened_ledger(config, reads_s=SCREEN_S) as parts:
        subject = await parts.transactions.read(_read_subject, options)
        if isinstance(subject, list):
            words = await parts.transactions.read(archive_sentence, options.batch or "")
            return _complain_not_one(subject, options, words)
        answer = await _answer(parts, subject) if isinstance(subject, Story) else None
    if isinstance(subject, Story):
        trace_id = trace_of(parts.ledger_id, subject.number).hex()
        link, is_traced = config.otel.link(trace_id), config.otel.endpoint is not None
        trace = {"otel_trace_id": trace_id, "otel_link": link}
        document = task_page.story_json(subject, answer) | trace
        lines = [*task_page.story_lines(subject, _text_of(answer), full=options.full)]
        if link or is_traced:
            lines.append(task_page.trace_line(trace_id, link))
    else:
        document = task_page.record_json(subject)
        lines = [*task_page.record_lines(subject, full=options.full)]
    if options.json:
        say_json(document)
        return 0
    say("\n".join(lines))
    if command := _next_command(subject, options.group):
        note(with_config(command, options.config))
    return 0


async def _answer(parts: LedgerParts, story: Story) -> Any:
    """Return the answer to a task as an export writes it; None if it has none that can be read."""
    if story.result is None or "result" in story.expired:
        return None
    ended = await parts.transactions.read(export.one_task, story.number)
    lost: list[str] = []
    outputs = OutputReader()
    try:
        (whole,) = await parts.transactions.executor(
            lambda: list(follow([ended], outputs.fetch, lost.append))
        )
        if whole.result is not None:
            with contained():
                return read_result(whole.input, whole.result.codec, whole.result.body).answer
    except Exception as error:  # noqa: BLE001 - a damaged answer hides nothing else of its task
        lost.append(f"the answer cannot be read: {describe_error(error)}")
    finally:
        outputs.close()
    for sentence in lost:
        note(shown(sentence))
    return None


def _text_of(answer: Any) -> str | None:
    if answer is None or isinstance(answer, str):
        return answer
    return orjson.dumps(answer).decode()


def _next_command(subject: Story | QuarantinedRecord, group: str) -> str:
    """Return what runs a dead task or a record again; empty for any other task."""
    if isinstance(subject, QuarantinedRecord):
        selection = f"--id quarantine:{subject.number}" if subject.replayed_at is None else ""
    elif subject.status is Status.DEAD:
        selection = f"--batch {shlex.quote(subject.batch)} --id {shlex.quote(subject.key)}"
    else:
        selection = ""
    return selection and f"run it again: docllm replay {selection} --group {group}"


def _read_subject(
    connection: Connection, options: argparse.Namespace
) -> Story | QuarantinedRecord | list[str]:
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
    if names:
        fail(options, several(options.id, names), id=options.id, batches=names)
        return _AMBIGUOUS
    where = f"batch {options.batch!r}" if options.batch else f"group {options.group}"
    advice = f"no task {options.id!r} in {where}; see: docllm status --group {options.group}" + (
        f"; {words}" if words else ""
    )
    fail(options, with_config(advice, options.config), id=options.id, batches=names)
    return _UNKNOWN
