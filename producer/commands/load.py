"""`load`: from lines or documents to tasks; every bad line is reported, the good ones are loaded."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO

from producer import store
from producer.app import Parts, opened
from producer.documents import documents_batch, read_documents
from producer.estimate import Estimate
from producer.lines import STDIN, Bad, Good, batch_name, read_lines
from producer.load import Loader, Summary
from producer.rejects import Rejects, rejects_path
from producer.screen import bar, note, say
from schemas import collector, crash
from schemas.clock import SystemClock
from schemas.config import Config
from schemas.errors import ConfigError
from schemas.lanes import ThreadLane

SHOWN = 20
DOCUMENTS_ONLY = ("prompt", "model", "schema", "by_uri")
MAX_BATCH_NAME_BYTES = 191


class Input:
    """What is to be loaded: it can be read more than once, and knows its batch and the place of its rejects."""

    def __init__(self, config: Config, options: argparse.Namespace, stack: ExitStack) -> None:
        if (options.file is None) == (options.documents is None):
            raise ConfigError("name one input: a FILE of task lines ('-' for stdin), or --documents DIR|GLOB with --prompt TEXT")
        if options.documents is not None and options.prompt is None:
            raise ConfigError("--documents needs --prompt 'TEXT with {document}'")
        stray = [f"--{name.replace('_', '-')}" for name in DOCUMENTS_ONLY if getattr(options, name)]
        if options.documents is None and stray:
            raise ConfigError(f"{', '.join(stray)} only with --documents: a task line says such things itself")
        self._options = options
        self._stack = stack
        self._data_dir = config.data_dir
        self._spooled: str | None = None
        self.batch = _checked(options.batch or self._default_batch())
        self.rejects = rejects_path(options.file or STDIN, self.batch, Path.cwd())

    def _default_batch(self) -> str:
        if self._options.documents is not None:
            return documents_batch(self._options.documents)
        return batch_name(self._options.file, datetime.fromtimestamp(SystemClock().utc_s(), UTC))

    def lines(self) -> Iterator[Good | Bad]:
        """Return the lines from the start, at most --limit of them."""
        return islice(self._all(), self._options.limit)

    def _all(self) -> Iterator[Good | Bad]:
        options = self._options
        if options.documents is None:
            return read_lines(self._spooled or options.file, stdin=sys.stdin.buffer)
        return read_documents(
            options.documents,
            prompt=options.prompt,
            model=options.model,
            schema=options.schema,
            by_uri=options.by_uri,
            leave_out=[self.rejects, self._data_dir],
        )

    def spool(self) -> None:
        """Keep standard input in a file, so that it can be read twice."""
        if self._options.file == STDIN:
            file = self._stack.enter_context(_temporary())
            shutil.copyfileobj(sys.stdin.buffer, file)
            file.flush()
            self._spooled = file.name


@contextmanager
def _temporary() -> Iterator[IO[bytes]]:
    with tempfile.NamedTemporaryFile(prefix="docllm-stdin-") as file:
        yield file


def _checked(name: str) -> str:
    if not name.strip() or name != name.strip() or not name.isprintable() or len(name.encode()) > MAX_BATCH_NAME_BYTES:
        raise ConfigError(f"batch name {name!r}: use 1 to {MAX_BATCH_NAME_BYTES} printable bytes without surrounding blanks (--batch)")
    return name


async def load(config: Config, options: argparse.Namespace) -> int:
    """Load, or with --dry-run only check; return 1 when a line was bad."""
    with ExitStack() as stack:
        source = Input(config, options, stack)
        rejects = stack.enter_context(Rejects(source.rejects))
        report = Report(rejects)
        estimate = Estimate(prices=config.prices, default_model=config.llm.model)
        if options.strict or options.dry_run:
            source.spool()
            _count(source.lines(), report, Estimate(prices={}, default_model=None) if not options.dry_run else estimate)
            if options.dry_run or rejects.count:
                return _checked_only(options, estimate, rejects)
        async with opened(config, options.group) as parts:
            collector.calm()
            summary = await _load(parts, source, report, estimate)
        _tell(config, source, summary, estimate, rejects)
        return 1 if rejects.count else 0


class Report:
    """Says what is bad, the first lines on stderr and all of them in the rejects file."""

    def __init__(self, rejects: Rejects) -> None:
        self._rejects = rejects

    def bad(self, line: Bad) -> None:
        """Report one line. Raises ConfigError when the rejects file cannot be written."""
        try:
            self._rejects.add(line)
        except OSError as error:
            path = self._rejects.path
            raise ConfigError(f"{path} cannot be written: {error.strerror}; what is bad is kept there, make room for it") from None
        if self._rejects.count <= SHOWN:
            note(str(line))
        elif self._rejects.count == SHOWN + 1:
            note(f"... the others are in {self._rejects.path}")


def _count(lines: Iterable[Good | Bad], report: Report, estimate: Estimate) -> None:
    for line in lines:
        if isinstance(line, Good):
            estimate.add(line)
        else:
            report.bad(line)


def _checked_only(options: argparse.Namespace, estimate: Estimate, rejects: Rejects) -> int:
    if options.dry_run:
        say(f"dry run: nothing is loaded; {estimate}")
    if rejects.count:
        say(f"nothing is loaded: {_lines(rejects.count)}; repair `text` in {rejects.path} or the input, and load again")
    return 1 if rejects.count else 0


async def _load(parts: Parts, source: Input, report: Report, estimate: Estimate) -> Summary:
    lines = source.lines()  # an input that cannot be opened leaves no batch behind
    into = await parts.lane(lambda: parts.database.run(lambda c: store.open_batch(c, source.batch, parts.topics.group)))
    crash.reach("load.batch_made")
    reading = ThreadLane("reading")
    with bar(f"loading {source.batch}") as shown:
        loader = Loader(
            database=parts.database,
            lane=parts.lane,
            reading=reading,
            publisher=parts.publisher,
            topics=parts.topics,
            clock=parts.clock,
            ledger_id=parts.ledger_id,
            into=into,
            max_attempts_of=parts.config.max_attempts_of,
            reject=report.bad,
            progress=shown.show,
        )
        try:
            return await loader.load(_estimated(lines, estimate))
        finally:
            reading.close(wait=False)


def _estimated(lines: Iterable[Good | Bad], estimate: Estimate) -> Iterator[Good | Bad]:
    for line in lines:
        if isinstance(line, Good):
            estimate.add(line)
        yield line


def _tell(config: Config, source: Input, summary: Summary, estimate: Estimate, rejects: Rejects) -> None:
    say(f"batch {source.batch}: {_result(summary)}; {estimate}")
    if rejects.count:
        say(f"{_lines(rejects.count)} in {rejects.path}; repair `text` there and load that file into the same batch")
    if summary.unsent:
        note(f"{summary.unsent} records are not on their topic yet ({summary.errors[0]}); any agent sends them")
    if estimate.files and not config.roots():
        note(f"tasks that name their document by URI: {estimate.files}; set DOCLLM_DOCUMENT_ROOTS for the agents")


def _result(summary: Summary) -> str:
    known = f"{summary.known} were there already" if summary.known else ""
    loaded = f"{summary.new} tasks loaded" if summary.new else "nothing new"
    return f"{loaded}, {known}" if known else loaded


def _lines(count: int) -> str:
    return f"{count} bad line" + ("" if count == 1 else "s")
