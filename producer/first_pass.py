"""The reading of an input before anything of it is loaded: `load --strict` and `--dry-run`. It writes nothing to the ledger.

It finds what a load would refuse: lines that are no tasks, and ids that clash with an earlier line or with the ledger.
"""

import hashlib
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from producer.accept import new_task
from producer.lines import Bad, Good, clashing
from producer.load import CHUNK, chunks
from producer.store import NewTask
from schemas.envelope import digest
from schemas.errors import ConfigError
from schemas.lanes import Lane

# Returns the positions of the tasks that are in the ledger already, with other content.
Ask = Callable[[Sequence[NewTask]], Awaitable[Collection[int]]]

_CACHE_KIB = 64 << 10
_ANY_ATTEMPTS = 1  # nothing is stored


class Imprint:
    """What stands for an input as it was read: two readings of the same lines are equal."""

    def __init__(self) -> None:
        self.lines = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, line: Good | Bad) -> None:
        """Take the next line."""
        self.lines += 1
        self._hash.update(digest(line.key.encode(), line.value) if isinstance(line, Good) else str(line).encode("utf-8", "replace"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Imprint) and (self.lines, self._hash.digest()) == (other.lines, other._hash.digest())

    __hash__ = None  # type: ignore[assignment]


class Seen:
    """The ids of an input with the digests of their tasks: in a nameless file of SQLite's, since millions fit no memory."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for pragma in (f"cache_size=-{_CACHE_KIB}", "journal_mode=OFF", "synchronous=OFF"):
            self._file.execute(f"PRAGMA {pragma}")
        self._file.execute("CREATE TABLE seen (key BLOB PRIMARY KEY, digest BLOB) WITHOUT ROWID")

    def clashing(self, tasks: Sequence[NewTask]) -> list[int]:
        """Note the tasks; return the positions of those whose id came before with other content. Raises ConfigError for want of room."""
        try:
            return [position for position, task in enumerate(tasks) if not self._takes(task)]
        except sqlite3.OperationalError as error:
            raise ConfigError(f"the temporary folder does not take what is to be compared: {error}; name another one with TMPDIR") from None

    def _takes(self, task: NewTask) -> bool:
        if self._file.execute("INSERT INTO seen VALUES (?, ?) ON CONFLICT DO NOTHING", (task.key, task.digest)).rowcount:
            return True
        (found,) = self._file.execute("SELECT digest FROM seen WHERE key = ?", (task.key,)).fetchone()
        return bool(found == task.digest)

    def close(self) -> None:
        """Give the file up."""
        self._file.close()


class FirstPass:
    """Reads an input on a thread and reports each bad line of it; `ask` is None where the ledger holds nothing of the batch."""

    def __init__(self, *, batch: str, reading: Lane, ask: Ask | None, reject: Callable[[Bad], None]) -> None:
        self._batch = batch
        self._reading = reading
        self._ask = ask
        self._reject = reject

    async def read(self, lines: Iterable[Good | Bad]) -> None:
        """Read to the end."""
        seen, parts = Seen(), chunks(lines, CHUNK)
        try:
            while chunk := await self._reading(lambda: next(parts, [])):
                await self._look(chunk, seen)
        finally:
            await self._reading(seen.close)  # a statement may still run on that thread

    async def _look(self, chunk: Sequence[Good | Bad], seen: Seen) -> None:
        good = [line for line in chunk if isinstance(line, Good)]
        tasks = [new_task(line.task, line.value, lambda _type: _ANY_ATTEMPTS, raw_key=None) for line in good]
        found = set(await self._reading(lambda: seen.clashing(tasks)))
        if self._ask is not None and tasks:
            found |= set(await self._ask(tasks))
        bad = [line for line in chunk if isinstance(line, Bad)] + [clashing(good[position], self._batch) for position in found]
        for line in sorted(bad, key=lambda one: one.line):
            self._reject(line)
