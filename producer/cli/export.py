"""`export`: the command that writes the results."""

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from docllm.producer.app import SCREEN_S, opened_ledger
from docllm.producer.cli.chosen_batches import chosen_batches
from docllm.producer.ledger import store
from docllm.producer.ledger.results import export as exports
from docllm.producer.ledger.results.result_lines import (
    ExportedTask,
    LineOf,
    docllm_line,
    openai_line,
)
from docllm.producer.ledger.retention import archive_rows
from docllm.producer.ledger.retention.archive_sentence import archive_sentence, require_rows
from docllm.producer.screen.output import complain, note
from docllm.producer.text.output_file import standard_output, whole_file
from docllm.producer.text.printable import escaped, shown
from docllm.schemas.errors import ConfigError
from docllm.schemas.objects.errors import ObjectError
from docllm.schemas.objects.store import ObjectStores
from docllm.schemas.outputs.stores import OutputStores
from docllm.schemas.runtime.executors import ThreadExecutor
from docllm.schemas.settings.config import Config
from docllm.schemas.task.result.output_pointer import OutputPointer
from docllm.schemas.task.states import Status
from docllm.schemas.text.wording import number_of

# /dev/stdout may be a file in append mode, which must not be replaced
STDOUT = frozenset({"-", "/dev/stdout"})
INCOMPLETE_SHOWN = 20


_AT_ONCE = 16
_SHOWN = 20


class OutputReader:
    """Reads objects, some at once, for the thread of an export. Made on the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadExecutor("outputs", threads=4)
        self._stores = OutputStores(executor=self._executor, objects=ObjectStores())
        self._free = asyncio.Semaphore(_AT_ONCE)

    def fetch(self, pointers: Sequence[OutputPointer]) -> Sequence[bytes | Exception]:
        """Return the content of each object, or the error in its place."""
        return asyncio.run_coroutine_threadsafe(self._all(pointers), self._loop).result()

    def close(self) -> None:
        """Close the threads."""
        self._executor.close()

    async def _all(self, pointers: Sequence[OutputPointer]) -> list[bytes | Exception]:
        return await asyncio.gather(*map(self._one, pointers))

    async def _one(self, pointer: OutputPointer) -> bytes | Exception:
        async with self._free:
            try:
                return await self._stores.get(pointer.uri, limit=pointer.size)
            except ObjectError as error:
                return error


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
        names = await chosen_batches(parts, options)
        if options.batch is not None:
            await parts.transactions.read(require_rows, options.batch)
        counts: dict[int, Counter[Status]] = {}
        lost: list[str] = []
        with _output(output) as file:
            read = parts.transactions.database.run_singly
            outputs = OutputReader()
            counts = await parts.transactions.executor(
                lambda: exports.export(read, list(names), line_of, file, outputs.fetch, lost.append)
            )
            outputs.close()
        _report_export([(names[batch_id], states) for batch_id, states in counts.items()], output)
        if options.batch is None:
            _report_archived(await parts.transactions.read(archive_rows.archived, options.group))
        elif words := await parts.transactions.read(archive_sentence, options.batch):
            note(shown(words))
        half_loaded = await parts.transactions.read(store.half_loaded, options.group)
        for name in half_loaded:
            if name in names.values():
                note(f"incomplete: {store.half_loaded_message(name)}")
    return report_lost(lost)


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
