"""Reads an input before anything is loaded: `load --strict` and `--dry-run`.

It writes nothing to the ledger. It finds what a load would refuse: lines that are no tasks, and ids
that clash with an earlier line or with the ledger.
"""

import hashlib
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from docllm.producer.input.lines import InvalidLine, ValidLine, clashing
from docllm.producer.ledger.new_tasks import NewTask
from docllm.producer.ledger.store import Accepted
from docllm.producer.loading.loader import CHUNK, Chunk, Summary, chunks
from docllm.producer.loading.task_row import new_task
from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.task.record.envelope import digest

# Returns what the ledger would answer for the tasks; of new tasks it returns only their positions.
Ask = Callable[[Sequence[NewTask]], Awaitable[Accepted]]

_CACHE_KIB = 64 << 10
_ANY_ATTEMPTS = 1  # nothing is stored, so any number will do


@dataclass(slots=True)
class InputDigest:
    """A hash of an input as it was read: two readings of the same lines are equal."""

    lines: int = 0
    chain: bytes = b""

    def add(self, line: ValidLine | InvalidLine) -> None:
        """Add the next line."""
        self.lines += 1
        of_line = (
            digest(line.key.encode(), line.value)
            if isinstance(line, ValidLine)
            else str(line).encode("utf-8", "replace")
        )
        self.chain = hashlib.blake2b(self.chain + of_line, digest_size=16).digest()


class KeyIndex:
    """The ids of an input with the digests of their tasks.

    They are in an unnamed temporary file of SQLite, because millions do not fit in memory.
    """

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for pragma in (f"cache_size=-{_CACHE_KIB}", "journal_mode=OFF", "synchronous=OFF"):
            self._file.execute(f"PRAGMA {pragma}")
        self._file.execute("CREATE TABLE seen (key BLOB PRIMARY KEY, digest BLOB) WITHOUT ROWID")

    def matching(self, tasks: Sequence[NewTask]) -> Accepted:
        """Note the tasks; return which ids came before, and whether with the same content.

        Raises ConfigError if the temporary folder has no room.
        """
        try:
            comparisons = [self._compare(task) for task in tasks]
        except sqlite3.OperationalError as error:
            raise ConfigError(
                f"the temporary folder cannot hold the ids to compare: {error}; "
                "name another one with TMPDIR"
            ) from None
        new, known, clashing = (
            [position for position, comparison in enumerate(comparisons) if comparison is wanted]
            for wanted in (None, True, False)
        )
        return Accepted(dict.fromkeys(new, 0), tuple(known), tuple(clashing), ())

    def _compare(self, task: NewTask) -> bool | None:
        """Return whether the id came before with this content; None if it did not come before."""
        insert = "INSERT INTO seen VALUES (?, ?) ON CONFLICT DO NOTHING"
        if self._file.execute(insert, (task.key, task.digest)).rowcount:
            return None
        query = "SELECT digest FROM seen WHERE key = ?"
        (stored,) = self._file.execute(query, (task.key,)).fetchone()
        return bool(stored == task.digest)

    def close(self) -> None:
        """Close the file, which deletes it."""
        self._file.close()


@dataclass(slots=True, kw_only=True)
class Preflight:
    """Reads an input on an executor; reports each bad line and each good line that is new.

    `ask` is None if the ledger holds nothing of the batch. `over_http`: who sent the input has no
    commands.
    """

    batch: str
    reading: Executor
    ask: Ask | None
    reject: Callable[[InvalidLine], None]
    is_new: Callable[[ValidLine], None]
    over_http: bool = False
    summary: Summary = field(default_factory=Summary, init=False)

    async def read(self, lines: Iterable[ValidLine | InvalidLine]) -> Summary:
        """Read to the end; return what a load would do."""
        index, chunks_left = KeyIndex(), chunks(lines, CHUNK, _new_task)
        try:
            while chunk := await self.reading(lambda: next(chunks_left, None)):
                await self._check_chunk(chunk, index)
        finally:
            await self.reading(index.close)  # a statement may still run on that executor
        return self.summary

    async def _check_chunk(self, chunk: Chunk, index: KeyIndex) -> None:
        good_lines, tasks = chunk.good, chunk.tasks
        in_input = await self.reading(lambda: index.matching(tasks))
        new, clashes = set(in_input.new), set(in_input.clashing)
        stored: Mapping[int, bytes] = {}
        if self.ask is not None and tasks:
            in_ledger = await self.ask(tasks)
            new, clashes = new & in_ledger.new.keys(), clashes | set(in_ledger.clashing)
            stored = in_ledger.stored
        for position in sorted(new):
            self.is_new(good_lines[position])
        bad_lines = chunk.bad + [
            clashing(
                good_lines[position], self.batch, stored.get(position), over_http=self.over_http
            )
            for position in clashes
        ]
        for line in sorted(bad_lines, key=lambda bad: bad.line):
            self.reject(line)
        self.summary.new += len(new)
        self.summary.bad += len(bad_lines)
        self.summary.known += len(good_lines) - len(new) - len(clashes)
        self.summary.repeated += len(set(in_input.known) - clashes)


def _new_task(line: ValidLine) -> NewTask:
    return new_task(line.task, line.value, lambda _type: _ANY_ATTEMPTS, raw_key=None)
