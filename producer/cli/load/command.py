"""`load`: turns lines or documents into tasks. It reports bad lines and loads the good ones."""

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta

from docllm.producer.app import LedgerParts, Parts, is_ledger_missing, opened, opened_ledger
from docllm.producer.cli.load.input import Conversions, Input
from docllm.producer.cli.load.report import (
    BadLineReport,
    Sums,
    changed_message,
    report_check,
    report_load,
    report_rejects,
)
from docllm.producer.input.line_checks import LineChecks
from docllm.producer.input.lines import InvalidLine, ValidLine
from docllm.producer.input.rejects import Rejects, TooManyRejectsError
from docllm.producer.input.survey import surveyed
from docllm.producer.ledger import batch_options, store, tally
from docllm.producer.ledger.status import agent_status
from docllm.producer.loading.loader import Loader, Summary, make_loader
from docllm.producer.loading.preflight import Ask, InputDigest, Preflight
from docllm.producer.loading.unfinished import BacklogLimit
from docllm.producer.screen.live import Bar, bar
from docllm.producer.screen.output import CommandAnswer, answering, complain, note
from docllm.producer.text.pace import PaceMeter, left_text, rate_text
from docllm.schemas.errors import UnreachableError, UnsafeStateError
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import collector, crash
from docllm.schemas.runtime.clock import Clock, SystemClock
from docllm.schemas.runtime.executors import ThreadExecutor
from docllm.schemas.settings.config import Config
from docllm.schemas.text.wording import number_of

LINE_S = 30.0

# How much of the input is done, given the tasks that are loaded, and how much there is, if known.
Share = Callable[[int], tuple[float, float | None]]


class LoadProgress:
    """The progress of one load."""

    def __init__(self, *, shown: Bar, share: Share, clock: Clock, batch: str) -> None:
        self._bar = shown
        self._share = share
        self._clock = clock
        self._batch = batch
        self._tasks, self._input = PaceMeter(), PaceMeter()
        self._tasks.see(0, clock.now_s())
        self._next_at_s = clock.now_s() + LINE_S

    def show(self, tasks: int) -> None:
        """Show the progress, with so many tasks loaded."""
        now_s = self._clock.now_s()
        done, total = self._share(tasks)
        self._tasks.see(tasks, now_s)
        self._input.see(done, now_s)
        facts = [number_of(tasks, "task")]
        if total:
            facts.append(f"{min(100.0, 100 * done / total):.0f} %")
        left_s = None if total is None else self._input.left_s(max(0.0, total - done))
        facts += [rate_text(self._tasks.per_s), left_text(left_s)]
        if self._bar.shown:
            self._bar.show(done, total, "  ".join(filter(None, facts)))
        elif now_s >= self._next_at_s:
            self._next_at_s = now_s + LINE_S
            note(f"loading {self._batch}: {', '.join(filter(None, facts))}")


@asynccontextmanager
async def _ledger_if_any(
    config: Config, options: argparse.Namespace
) -> AsyncIterator[LedgerParts | None]:
    """Yield the ledger with which an input is compared; create nothing.

    A dry run goes on without a ledger that does not answer: it only estimates, and no result
    depends on it.
    """
    if is_ledger_missing(config):
        yield None
        return
    async with AsyncExitStack() as stack:
        ledger: LedgerParts | None = None
        try:
            ledger = await stack.enter_async_context(opened_ledger(config))
        except (UnreachableError, UnsafeStateError) as error:
            if not options.dry_run:
                raise
            note(
                "ids are not compared with those of the ledger, and the types that only agents "
                f"know are missing: {error}"
            )
        yield ledger


async def _batch_before(
    transactions: Transactions, options: argparse.Namespace, source: Input
) -> store.Batch | None:
    """Return the batch, if it is there; documents are compared with those that it has."""
    into = await transactions.read(store.own_batch, source.batch, options.group, store.Origin.LOAD)
    if into is not None:
        source.compare_with(lambda name: transactions.read(store.stored_line, into, name))
    return into


def _matching(transactions: Transactions, into: store.Batch) -> Ask:
    return lambda tasks: transactions.read(store.matching, into, tasks)


async def load(config: Config, options: argparse.Namespace) -> int:
    """Load the input, or with --dry-run only check it.

    Returns 1 if a line was bad, and 4 if the input changed after it was checked.
    """
    with ExitStack() as stack:
        conversions = Conversions()
        source = Input(config, options=options, stack=stack, conversions=conversions)
        rejects = stack.enter_context(
            Rejects(
                source.rejects,
                max_lines=options.max_rejects,
                noun=source.noun,
                dry=options.dry_run,
            )
        )
        report = BadLineReport(rejects)
        stack.callback(report.finish)
        with answering(options) as answer:
            # Unknown, unless the input is read to its end.
            answer.put(
                batch=source.batch, dry_run=options.dry_run, loaded=None, new=None, warnings=[]
            )
            try:
                return await _load_all(config, options, source, report, answer)
            except TooManyRejectsError as error:
                report.finish()
                refused = number_of(rejects.count, f"bad {source.noun}")
                answer.say(f"{refused}{rejects.place}")
                complain(str(error))
                return error.exit_code
            finally:
                await conversions.close()
                path = str(rejects.path) if rejects.count and not rejects.dry else None
                answer.put(bad=rejects.count, rejects=path)


async def _load_all(
    config: Config,
    options: argparse.Namespace,
    source: Input,
    report: BadLineReport,
    answer: CommandAnswer,
) -> int:
    rejects = report.rejects
    sums = Sums(config, by_uri=options.by_uri, sizes=source.sizes)
    checked, loaded = InputDigest(), InputDigest()
    if options.strict or options.dry_run:
        # After a check with --strict the load itself sums, so the check must not.
        expected = await _check(
            config, options, source, report, sums if options.dry_run else None, checked
        )
        report.finish()
        if options.dry_run or rejects.count:
            return report_check(source, options, expected, sums, rejects, answer)
    async with opened(config, options.group) as parts:
        collector.calm()
        await _batch_before(parts.transactions, options, source)
        reported = await parts.transactions.read(agent_status.read_types, options.group)

        def open_lines() -> Iterator[ValidLine | InvalidLine]:
            lines = _checked_lines(config, options, reported, source)
            return _recorded(lines, sums, loaded if options.strict else None)

        summary = await _load(parts, options, source, open_lines, report, sums.add_new)
    report.finish()
    report_load(source, summary, sums, answer)
    report_rejects(source, rejects, options, answer)
    if options.strict and checked != loaded:
        complain(changed_message(source.batch, checked, loaded))
        return UnsafeStateError.exit_code
    return 1 if rejects.count else 0


async def _check(
    config: Config,
    options: argparse.Namespace,
    source: Input,
    report: BadLineReport,
    sums: Sums | None,
    digest: InputDigest,
) -> Summary:
    """Report every line that a load would refuse; return what the load would do."""
    reading = ThreadExecutor("reading")
    try:
        await reading(source.spool)
        async with _ledger_if_any(config, options) as ledger:
            ask: Ask | None = None
            reported = frozenset[str]()
            if ledger is not None:
                if into := await _batch_before(ledger.transactions, options, source):
                    ask = _matching(ledger.transactions, into)
                reported = await ledger.transactions.read(agent_status.read_types, options.group)
            lines = await reading(
                lambda: _begun(_checked_lines(config, options, reported, source), options, source)
            )
            is_new = sums.add_new if sums is not None else _nothing
            preflight = Preflight(
                batch=source.batch, reading=reading, ask=ask, reject=report.bad, is_new=is_new
            )
            return await preflight.read(_recorded(lines, sums, digest))
    finally:
        reading.close(wait=False)


def _checked_lines(
    config: Config,
    options: argparse.Namespace,
    reported: frozenset[str],
    source: Input,
) -> Iterator[ValidLine | InvalidLine]:
    """Return the input's lines; tasks that would certainly fail become bad lines."""
    checks = LineChecks(
        config,
        reported=reported,
        types=options.allow_type,
        routes=options.routes_allowed,
        begin=_not_before(options.not_before, SystemClock()),
    )
    return checks.checked(source.lines())


def _nothing(_line: ValidLine) -> None:
    pass


async def _open_batch(
    parts: Parts, options: argparse.Namespace, name: str
) -> tuple[store.Batch, batch_options.TaskDefaults]:
    """Open a batch for a load; return it, and what holds for lines that do not say otherwise."""
    write = parts.transactions.write
    into = await write(store.open_batch, name, parts.topics.group)
    await write(store.begin_load, into)
    if options.routes_allowed is not None:
        await write(batch_options.allow_routes, into.id, options.routes_allowed)
    begin = _not_before(options.not_before, parts.clock)
    not_before = begin and begin.replace(tzinfo=None)
    given = batch_options.TaskDefaults(options.tenant, options.priority, not_before)
    defaults = await write(batch_options.set_defaults, into.id, given)
    if options.output_uri is not None:
        await write(batch_options.send_outputs, into.id, options.output_uri)
    if options.output_raw:
        await write(batch_options.send_answers, into.id)
    return into, defaults


def _not_before(given: datetime | timedelta | None, clock: Clock) -> datetime | None:
    """Return when the tasks of a load may run."""
    if isinstance(given, timedelta):
        return datetime.fromtimestamp(clock.utc_s(), UTC) + given
    return given


async def _load(
    parts: Parts,
    options: argparse.Namespace,
    source: Input,
    open_lines: Callable[[], Iterator[ValidLine | InvalidLine]],
    report: BadLineReport,
    is_new: Callable[[ValidLine], None],
) -> Summary:
    """Open the input and load its lines; an input without tasks leaves no batch behind."""
    batch = source.batch
    reading, counting = ThreadExecutor("reading"), ThreadExecutor("counting")
    try:
        # The file may be a pipe that nobody has opened yet.
        lines = await reading(lambda: _begun(open_lines(), options, source))
        into, defaults = await _open_batch(parts, options, batch)
        before = await parts.transactions.read(tally.loaded, into.id)
        crash.reach("load.batch_made")
        counted_all = asyncio.ensure_future(counting(source.count))
        with bar(f"loading {batch}") as shown_bar:
            loading = LoadProgress(
                shown=shown_bar, share=source.share, clock=parts.clock, batch=batch
            )
            loader = make_loader(
                parts,
                into,
                reading=reading,
                defaults=defaults,
                backlog=_backlog_limit(parts, options),
                reject=report.bad,
                is_new=is_new,
                progress=loading.show,
            )
            loader.summary.before = before
            try:
                with _noting_a_break(loader, batch):
                    summary = await loader.load(lines)
                    known_before = summary.known - summary.repeated
                    summary.repeated += max(0, known_before - before)
                    return summary
            finally:
                counted_all.cancel()
    finally:
        for executor in (reading, counting):
            executor.close(wait=False)


def _begun(
    lines: Iterator[ValidLine | InvalidLine], options: argparse.Namespace, source: Input
) -> Iterator[ValidLine | InvalidLine]:
    """Return the lines of an input, once its first lines have shown that it has tasks."""
    if source.documents:
        return lines
    reject_all = options.max_rejects == 0
    return surveyed(lines, source=source.name, batch=source.batch, reject_all=reject_all)


@contextmanager
def _noting_a_break(loader: Loader, batch: str) -> Iterator[None]:
    """Say how much is loaded if the load ends before its input does."""
    try:
        yield
    except TooManyRejectsError:
        note(
            f"batch {batch}: {number_of(loader.summary.new, 'task')} loaded of the input, "
            "which was not read to its end"
        )
        raise
    except asyncio.CancelledError:
        note(
            f"batch {batch}: interrupted, with {number_of(loader.summary.new, 'task')} loaded; "
            "start the same load again for the rest"
        )
        raise


def _backlog_limit(parts: Parts, options: argparse.Namespace) -> BacklogLimit:
    return BacklogLimit(
        transactions=parts.transactions,
        clock=parts.clock,
        group=parts.topics.group,
        most=options.max_backlog or 0,
        say=note,
    )


def _recorded(
    lines: Iterable[ValidLine | InvalidLine], sums: Sums | None, digest: InputDigest | None
) -> Iterator[ValidLine | InvalidLine]:
    for line in lines:
        if digest is not None:
            digest.add(line)
        if sums is not None and isinstance(line, ValidLine):
            sums.add(line)
        yield line
