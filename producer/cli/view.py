"""`status` and `export`: commands that show the state and write the results."""

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from producer.app import SCREEN_S, LedgerParts, opened_ledger
from producer.cli.dead import width
from producer.cli.outputs import LostOutputs, OutputReader
from producer.ledger import store
from producer.ledger.results import export as exports
from producer.ledger.results.result_lines import ExportedTask, LineOf, docllm_line, openai_line
from producer.ledger.retention import archives
from producer.ledger.status import group_status as statuses
from producer.screen.group_status import status_text
from producer.screen.output import note, say_json, say_styled
from producer.text.output_file import standard_output, whole_file
from producer.text.printable import escaped, shown
from schemas.errors import ConfigError
from schemas.runtime.next_command import with_config
from schemas.settings.config import Config
from schemas.task.states import Status

# /dev/stdout may be a file in append mode, which must not be replaced
STDOUT = frozenset({"-", "/dev/stdout"})
REFRESH_S = 1.0
INCOMPLETE_SHOWN = 20


async def status(config: Config, options: argparse.Namespace) -> int:
    """Show the group: live on a terminal, once when piped, as JSON with --json."""
    async with opened_ledger(config, reads_s=SCREEN_S) as parts:
        if options.batch is not None:
            await _batches(parts, options)
        if options.json:
            group_status = await _read(parts, options)
            waits = tuple(
                wait._replace(text=with_config(wait.text, options.config))
                for wait in group_status.waits
            )
            say_json(replace(group_status, waits=waits).as_json())
        elif _may_be_live() and not options.once:
            await _live(parts, options)
        else:
            group_status = await _read(parts, options)
            say_styled(_screen(group_status, options, width(), sys.stdout.encoding))
            if config.embedded and not group_status.batches:
                note(f"looked in {config.data_dir.resolve()}")
    return 0


def _may_be_live() -> bool:
    """Return whether stdout is a terminal that can draw over its lines."""
    return sys.stdout.isatty() and not Console().is_dumb_terminal


def _screen(
    group_status: statuses.GroupStatus,
    options: argparse.Namespace,
    width: int,
    encoding: str | None,
    height: int | None = None,
) -> Text:
    if options.batch is None:
        group_status = group_status.without_empty_batches()
    return status_text(
        group_status,
        width,
        lambda text: with_config(text, options.config),
        encoding,
        height,
    )


async def _batches(parts: LedgerParts, options: argparse.Namespace) -> dict[int, str]:
    """Return the names of the selected batches by id. Raises ConfigError if there are none."""
    names = await parts.transactions.read(store.batches_of, options.group, options.batch)
    if not names and options.batch is None:
        if count := await parts.transactions.read(archives.archived, options.group):
            raise ConfigError(
                f"all batches of group {options.group} are archived ({count:,}); name one with "
                f"--batch, see: python -m producer status --archived --group {options.group}"
            )
        raise ConfigError(
            f"group {options.group} has no batch yet; load one: "
            f"python -m producer load FILE --group {options.group}"
        )
    if not names:
        raise await parts.transactions.read(store.no_batch, options.group, options.batch)
    return names


async def _read(parts: LedgerParts, options: argparse.Namespace) -> statuses.GroupStatus:
    group, batch = options.group, options.batch
    return await parts.transactions.read(statuses.read, group, batch, archived=options.archived)


async def _live(parts: LedgerParts, options: argparse.Namespace) -> None:
    """Refresh until every task is final, or until Ctrl-C."""
    console, encoding = Console(), sys.stdout.encoding  # Live replaces stdout
    with Live(console=console, auto_refresh=False) as live:
        while True:
            group_status = await _read(parts, options)
            screen = _screen(group_status, options, console.width, encoding, console.height)
            live.update(screen, refresh=True)
            if not any(batch.open for batch in group_status.batches):
                return
            await asyncio.sleep(REFRESH_S)


async def export(config: Config, options: argparse.Namespace) -> int:
    """Write the results to stdout, or to a file as a whole; report batches that are not final."""
    line_of: LineOf = openai_line if options.format == "openai" else docllm_line
    if options.output is not None and options.file is not None:
        raise ConfigError(
            "name the file once: `-o FILE` is the same as FILE; leave one of them out"
        )
    named = options.file if options.output is None else options.output
    output = None if named in STDOUT else named
    if output is None and sys.stdout.isatty():
        line_of = _escaped(line_of)
    async with opened_ledger(config, reads_s=SCREEN_S) as parts:
        names = await _batches(parts, options)
        if options.batch is not None:
            await parts.transactions.read(archives.require_rows, *names)
        counts: dict[int, Counter[Status]] = {}
        with _output(output) as file:
            read = parts.transactions.database.auto
            outputs, lost = OutputReader(), LostOutputs()
            counts = await parts.transactions.executor(
                lambda: exports.export(read, list(names), line_of, file, outputs.fetch, lost.note)
            )
            outputs.close()
        _report_export([(names[batch_id], states) for batch_id, states in counts.items()], output)
        if options.batch is None:
            _report_archived(await parts.transactions.read(archives.archived, options.group))
        half_loaded = await parts.transactions.read(store.half_loaded, options.group)
        for name in half_loaded:
            if name in names.values():
                note(f"incomplete: {store.half_loaded_message(name)}")
    return lost.report()


def _report_archived(count: int) -> None:
    if count:
        batches = "1 archived batch is" if count == 1 else f"{count:,} archived batches are"
        note(f"{batches} left out; name one with --batch, as status --archived shows them")


def _escaped(line_of: LineOf) -> LineOf:
    """Return lines for a terminal: the same JSON, with unsafe characters escaped.

    No answer can move the cursor or hide text.
    """

    def line(ended: ExportedTask) -> bytes | None:
        raw = line_of(ended)
        return raw and escaped(raw.decode()).encode()

    return line


@contextmanager
def _output(path: str | None) -> Iterator[BinaryIO]:
    try:
        with standard_output() if path is None else whole_file(Path(path)) as file:
            yield file
    except OSError as error:
        where = "standard output" if path is None else path
        raise ConfigError(
            f"{where} cannot be written: {error.strerror}; "
            "name a file in a writable folder with free space"
        ) from None


def _report_export(counts: Sequence[tuple[str, Counter[Status]]], output: str | None) -> None:
    total = sum(states.total() for _, states in counts)
    waiting = [(name, states) for name, states in counts if exports.unfinished(states)]
    if waiting:
        unfinished = sum(exports.unfinished(states) for _, states in waiting)
        note(
            f"incomplete: {unfinished} of {total} {'task' if total == 1 else 'tasks'} "
            f"{'is' if unfinished == 1 else 'are'} not final yet; "
            "export again when they are"
        )
    for name, states in waiting[:INCOMPLETE_SHOWN]:
        note(f"  batch {shown(name)}: {exports.unfinished(states)} of {states.total()}")
    if len(waiting) > INCOMPLETE_SHOWN:
        note(f"  and {len(waiting) - INCOMPLETE_SHOWN} more")
    if output is not None and counts:
        note(f"{total} {'task' if total == 1 else 'tasks'} written to {output}")
