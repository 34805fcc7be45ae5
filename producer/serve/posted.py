"""Loads task lines that a client has posted, as `docllm load` loads a file.

Whatever is posted has come whole before a line of it is read: a client that vanishes while it sends
leaves nothing. One that vanishes later, or a server that is killed, leaves what a killed load
leaves: the same lines, posted again, load the rest.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import IO, Any

import orjson

from docllm.producer.app import Parts
from docllm.producer.input.line_checks import LineChecks
from docllm.producer.input.lines import STDIN, InvalidLine, ValidLine, read_lines
from docllm.producer.input.other_files import NoLinesError
from docllm.producer.input.packed import is_packed
from docllm.producer.ledger import batch_options, store
from docllm.producer.ledger.status import agent_status
from docllm.producer.loading.loader import Summary, make_loader
from docllm.schemas.errors import ConfigError, UnsafeStateError
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.executors import ThreadExecutor
from docllm.schemas.settings.config import Config
from docllm.schemas.task.record.envelope import MAX_TASK_BYTES

MAX_NAMED = 1000  # refused lines that an answer names

Lines = Iterator[ValidLine | InvalidLine]


@dataclass(slots=True)
class Refusals:
    """The refused lines of an input: the first ones, and how many there are."""

    named: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0

    def add(self, line: InvalidLine) -> None:
        """Add one line."""
        self.count += 1
        if len(self.named) < MAX_NAMED:
            self.named.append(
                {"line": line.line, "field": line.field, "error": line.error, "fix": line.fix}
            )


@dataclass(frozen=True, slots=True)
class Posted:
    """What became of posted lines."""

    batch: str
    summary: Summary
    refusals: Refusals

    @property
    def is_refused(self) -> bool:
        """Whether every line was bad."""
        summary = self.summary
        return self.refusals.count > 0 and not (summary.new or summary.known)

    def as_json(self) -> dict[str, Any]:
        """Return the answer; `rejected_more` counts the refused lines that it does not name."""
        answer = {
            "batch": self.batch,
            "loaded": self.summary.new,
            "twins": self.summary.known,
            "rejected": self.refusals.named,
        }
        more = self.refusals.count - len(self.refusals.named)
        return answer | ({"rejected_more": more} if more else {})


async def load_posted(parts: Parts, name: str, body: IO[bytes], *, close: bool) -> Posted:
    """Load the lines of a body into a batch, which is made if need be.

    `close` closes the batch. If every line is bad, nothing is made and nothing is closed.
    Raises what `store.own_batch` raises, and ConfigError if the body holds no lines at all.
    """
    write, refusals = parts.transactions.write, Refusals()
    reading = ThreadExecutor("reading")
    try:
        reported = await types_of_agents(parts)
        lines = await reading(
            lambda: _from_first_task(posted_lines(parts.config, body, reported), refusals)
        )
        if lines is None and refusals.count:
            return Posted(name, Summary(), refusals)
        if lines is None and not close:
            raise ConfigError("the body has no task line; send one JSON object a line")
        into = await _open(parts, name, make=lines is not None, close=close)
        summary = Summary()
        if lines is not None:
            defaults = await write(batch_options.task_defaults, into.id)
            loader = make_loader(
                parts, into, reading=reading, defaults=defaults, reject=refusals.add
            )
            summary = await loader.load(lines, closing=False)
        posted = Posted(name, summary, refusals)
        if close and not posted.is_refused:
            crash.reach("serve.posted")
            await write(store.close_batch, into)
        return posted
    finally:
        reading.close(wait=False)


async def types_of_agents(parts: Parts) -> frozenset[str]:
    """Return the types of task that agents of the group know."""
    return await parts.transactions.read(agent_status.read_types, parts.topics.group)


def posted_lines(config: Config, body: IO[bytes], reported: frozenset[str]) -> Lines:
    """Return the lines of a body; tasks that would certainly fail are bad lines.

    Raises ConfigError if the body is no text, when the first line is read.
    """
    return LineChecks(config, reported=reported).checked(_read(body))


def _from_first_task(lines: Lines, refusals: Refusals) -> Lines | None:
    """Read up to the first task; return the lines from there on, None if there is no task."""
    for line in lines:
        if isinstance(line, ValidLine):
            return chain((line,), lines)
        refusals.add(line)
    return None


async def _open(parts: Parts, name: str, *, make: bool, close: bool) -> store.Batch:
    """Return the batch of this name; make it, or raise ConfigError if there is none."""
    group, origin = parts.topics.group, store.Origin.HTTP
    joins, transactions = parts.config.serve_joins, parts.transactions
    into = await transactions.read(store.own_batch, name, group, origin, joins=joins)
    if into is None and make:
        into = await transactions.write(store.open_batch, name, group, origin, joins=joins)
    elif into is None:
        into = await transactions.read(store.require_batch, group, name)
    if close and into.origin is store.Origin.LOAD:
        raise UnsafeStateError(
            f"batch {name!r} was made by a load, which closes it by itself; leave close out"
        )
    return into


def as_lines(body: IO[bytes]) -> None:
    """Write a body that is one JSON object in several lines as one line."""
    body.seek(0)
    text = body.read(MAX_TASK_BYTES + 1)
    if len(text) <= MAX_TASK_BYTES and b"\n" in text.strip():
        try:
            is_object = type(orjson.loads(text)) is dict
        except orjson.JSONDecodeError:
            return
        if is_object:  # no text of JSON has a line end in it
            body.seek(0)
            body.truncate()
            body.write(text.replace(b"\r", b" ").replace(b"\n", b" "))


def _read(body: IO[bytes]) -> Lines:
    body.seek(0)
    with open(body.fileno(), "rb", closefd=False) as file:
        if is_packed(file.peek()):
            raise ConfigError("the body is packed; send it unpacked")
        try:
            yield from read_lines(STDIN, stdin=file)
        except NoLinesError as refusal:
            error = refusal.error.replace("the file", "the body", 1)
            raise ConfigError(f"{error}; {refusal.fix}") from None
