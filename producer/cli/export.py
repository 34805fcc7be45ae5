"""`export`: the command that writes the results."""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

from docllm.producer.app import SCREEN_S, LedgerParts, opened_ledger
from docllm.producer.arrow import require_arrow
from docllm.producer.cli.selection_options import chosen_batches, no_task, several
from docllm.producer.ledger import store
from docllm.producer.ledger.results import export as exports
from docllm.producer.ledger.results.export import Selection
from docllm.producer.ledger.results.new_results import mark_exported, new_results
from docllm.producer.ledger.results.output_reader import OutputReader
from docllm.producer.ledger.results.pointed_results import Fetch
from docllm.producer.ledger.results.result_lines import (
    ExportedTask,
    LineOf,
    docllm_line,
    fields_of,
    openai_line,
)
from docllm.producer.ledger.results.tables import (
    MAX_FLAT,
    CsvFile,
    FlatTable,
    JsonFile,
    ParquetFile,
    Table,
    TableFile,
)
from docllm.producer.ledger.retention import archive_rows
from docllm.producer.ledger.retention.archive_rows import archive_sentence, require_rows
from docllm.producer.screen.output import complain, note
from docllm.producer.text.output_file import standard_output, whole_file
from docllm.producer.text.printable import escaped, shown
from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime import crash
from docllm.schemas.settings.config import Config
from docllm.schemas.task.states import Status
from docllm.schemas.text.wording import number_of

# /dev/stdout may be a file in append mode, which must not be replaced
STDOUT = frozenset({"-", "/dev/stdout"})
INCOMPLETE_SHOWN = 20
_BY_NAME = frozenset({"jsonl", "csv", "parquet"})

_SHOWN = 20


def report_lost(lost: Sequence[str]) -> int:
    """Complain about results that could not be read, and return the exit code of the export."""
    if not lost:
        return 0
    for what in lost[:_SHOWN]:
        note(shown(what))
    if len(lost) > _SHOWN:
        note(f"and {len(lost) - _SHOWN} more")
    complain(
        f"{number_of(len(lost), 'result')} could not be read; their lines have the error "
        "UNREADABLE, all others are whole. Export again when their outputs are there"
    )
    return 1


async def export(config: Config, options: argparse.Namespace) -> int:
    """Write the results to stdout, or to a file as a whole; report batches that are not final."""
    if options.output is not None and options.file is not None:
        raise ConfigError(
            "name the file once: `-o FILE` is the same as FILE; leave one of them out"
        )
    named = options.file if options.output is None else options.output
    output = None if named in STDOUT else named
    form = _form(options, output)
    async with opened_ledger(config, reads_s=SCREEN_S) as parts:
        names = await chosen_batches(parts, options)
        if options.batch is not None:
            await parts.transactions.read(require_rows, options.batch)
        selections = await _selections(parts, options, names)
        counts: dict[int, Counter[Status]] = {}
        lost: list[str] = []
        left, is_whole = 0, False
        with output_file(output) as file:
            read = parts.transactions.database.run_singly
            with closing(OutputReader()) as outputs:
                counts, left = await parts.transactions.executor(
                    lambda: _written(
                        read, selections, form, file, options, outputs.fetch, lost.append
                    )
                )
            file.flush()
            is_whole = True  # a reader that left ends this block before
        crash.reach("export.whole")
        if options.only_new and is_whole and not lost:
            stored = {key: wanted.stored for key, wanted in selections.items() if wanted.stored}
            await parts.transactions.write(mark_exported, stored)
        _report_export([(names[batch_id], states) for batch_id, states in counts.items()])
        if output is not None:
            _report_lines(form, sum(counts.values(), Counter()), output)
        if left:
            note(
                f"results have more than {MAX_FLAT} fields; the first ones are columns, and the "
                "others are in the column result, as JSON"
            )
        if options.batch is None:
            _report_archived(await parts.transactions.read(archive_rows.archived, options.group))
        elif words := await parts.transactions.read(archive_sentence, options.batch):
            note(shown(words))
        half_loaded = await parts.transactions.read(store.half_loaded, options.group)
        for name in half_loaded:
            if name in names.values():
                note(f"incomplete: {store.half_loaded_message(name)}")
    return report_lost(lost)


def _form(options: argparse.Namespace, output: str | None) -> str:
    """Return the format of an export. Raises ConfigError for options that do not fit it."""
    ending = "" if output is None else Path(output).suffix.lower().removeprefix(".")
    by_name = ending if ending in _BY_NAME else None
    form: str = options.format or by_name or "jsonl"
    if by_name is not None and by_name != ("jsonl" if form == "openai" else form):
        raise ConfigError(
            f"--format {form} cannot be written to {output}: its name says {by_name}; "
            "name another file, or leave --format out"
        )
    if options.flatten and form == "openai":
        raise ConfigError(
            "--flatten makes a table, and --format openai has none; leave one of them out"
        )
    if options.bom and form != "csv":
        raise ConfigError(f"--bom is for CSV, and the format is {form}; leave it out")
    if options.only_new and (options.id is not None or options.status is not None):
        raise ConfigError(
            "--only-new writes the results that are new; leave out --id and --status with it"
        )
    if form == "parquet":
        require_arrow("the format parquet")
        if output is None and sys.stdout.isatty():
            raise ConfigError("Parquet is not for a terminal; name a file: export FILE.parquet")
    return form


async def _selections(
    parts: LedgerParts, options: argparse.Namespace, names: Mapping[int, str]
) -> dict[int, Selection]:
    """Return what to export of each batch. Raises ConfigError if no single task has the id."""
    if options.only_new:
        stored = await parts.transactions.read(new_results, names)
        return {batch_id: Selection(stored=stored[batch_id]) for batch_id in names}
    chosen = options.status and frozenset(Status[name.upper()] for name in options.status)
    if options.id is None:
        return dict.fromkeys(names, Selection(statuses=chosen))
    all_tasks = await parts.transactions.read(exports.with_key, options.group, options.id.encode())
    tasks = {batch_id: task_id for batch_id, task_id in all_tasks.items() if batch_id in names}
    if len(tasks) > 1:
        raise ConfigError(several(options.id, [names[batch_id] for batch_id in tasks]))
    if not tasks:
        raise ConfigError(no_task(options))
    return {key: Selection(task_id=task_id, statuses=chosen) for key, task_id in tasks.items()}


def _written(
    read: exports.Read,
    selections: Mapping[int, Selection],
    form: str,
    file: BinaryIO,
    options: argparse.Namespace,
    fetch: Fetch,
    note_lost: Callable[[str], None],
) -> tuple[dict[int, Counter[Status]], int]:
    """Write the selected tasks; return their states, and how many fields have no column."""
    on_terminal = file is sys.stdout.buffer and sys.stdout.isatty()
    line_of: LineOf = openai_line if form == "openai" else docllm_line
    if form in {"jsonl", "openai"} and not options.flatten:
        line_of = _escaped(line_of) if on_terminal else line_of
        return exports.export(read, selections, line_of, file.write, fetch, note_lost), 0
    rows: TableFile
    if form == "parquet":
        rows = ParquetFile(file)
    elif form == "csv":
        rows = CsvFile(file, bom=options.bom, shown=escaped if on_terminal else None)
    else:
        rows = JsonFile(file, shown=escaped if on_terminal else None)
    table = FlatTable(rows, most=MAX_FLAT) if options.flatten else Table(rows)
    counts = exports.export(read, selections, fields_of, table.write, fetch, note_lost)
    return counts, table.end()


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
def output_file(path: str | None) -> Iterator[BinaryIO]:
    """Yield a file that appears whole, or without a path standard output. Raises ConfigError."""
    try:
        with standard_output() if path is None else whole_file(Path(path)) as file:
            yield file
    except OSError as error:
        where = "standard output" if path is None else path
        raise ConfigError(
            f"{where} cannot be written: {error.strerror}; "
            "name a file in a writable folder with free space"
        ) from None


def _report_export(counts: Sequence[tuple[str, Counter[Status]]]) -> None:
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


def _report_lines(form: str, states: Counter[Status], output: str) -> None:
    """Say how many lines or rows were written; OpenAI's file has none for an unfinished task."""
    count = states.total() - (exports.unfinished(states) if form == "openai" else 0)
    noun = "row" if form in {"csv", "parquet"} else "line"
    note(f"{number_of(count, noun)} written to {output}")
