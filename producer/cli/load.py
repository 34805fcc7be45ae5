"""`load`: turns lines or documents into tasks. It reports bad lines and loads the good ones."""

import argparse
import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from producer.app import LedgerParts, Parts, is_ledger_missing, opened, opened_ledger
from producer.bus.topic_family import LANES_FROM
from producer.cli.load_input import Input
from producer.cli.load_progress import LoadProgress
from producer.cli.load_report import BadLineReport, Sums
from producer.input.excluded_files import own_files
from producer.input.lines import InvalidLine, ValidLine
from producer.input.refusals.blank_documents import BlankDocuments
from producer.input.refusals.known_routes import KnownRoutes
from producer.input.refusals.known_sources import SOURCES_FROM, KnownSources
from producer.input.refusals.known_types import KnownTypes
from producer.input.refusals.line_checks import checked
from producer.input.refusals.missing_prompts import MissingPrompts
from producer.input.rejects import Rejects, TooManyRejectsError
from producer.ledger import batch_options, store, tally
from producer.ledger.new_tasks import NewTask
from producer.ledger.status import reported_types
from producer.loading.backlog_limit import BacklogLimit
from producer.loading.loader import Loader, Summary
from producer.loading.preflight import Ask, InputDigest, Preflight
from producer.screen.answer import CommandAnswer, answering
from producer.screen.live import bar
from producer.screen.output import complain, note
from schemas.errors import UnreachableError, UnsafeStateError
from schemas.ledger import migrations
from schemas.runtime import collector, crash
from schemas.runtime.executors import ThreadExecutor
from schemas.runtime.next_command import with_config
from schemas.settings.config import Config
from schemas.text.wording import number_of

# The endings of files of task lines.
_OF_LINES = frozenset({".jsonl", ".ndjson", ".json"})


async def load(config: Config, options: argparse.Namespace) -> int:
    """Load the input, or with --dry-run only check it.

    Returns 1 if a line was bad, and 4 if the input changed after it was checked.
    """
    with ExitStack() as stack:
        source = Input(config, options, stack)
        rejects = stack.enter_context(
            Rejects(source.rejects, options.max_rejects, noun=source.noun)
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
                answer.say(f"{refused} in {rejects.path}")
                complain(str(error))
                return error.exit_code
            finally:
                path = str(rejects.path) if rejects.count else None
                answer.put(bad=rejects.count, rejects=path)


async def _load_all(
    config: Config,
    options: argparse.Namespace,
    source: Input,
    report: BadLineReport,
    answer: CommandAnswer,
) -> int:
    rejects = report.rejects
    sums = Sums(config)
    checked, loaded = InputDigest(), InputDigest()
    if options.strict or options.dry_run:
        # After a check with --strict the load itself sums, so the check must not.
        expected = await _check(
            config, options, source, report, sums if options.dry_run else None, checked
        )
        report.finish()
        if options.dry_run or rejects.count:
            return _report_check(source, options, expected, sums, rejects, answer)
    async with opened(config, options.group) as parts:
        collector.calm()
        await parts.transactions.read(
            store.own_batch, source.batch, options.group, store.Origin.LOAD
        )
        reported = await parts.transactions.read(reported_types.read_types, options.group)
        older = await _older(parts, options.group)
        lines = _checked_lines(config, options, reported, source, older)
        recorded = _recorded(lines, sums, loaded)
        summary = await _load(parts, options, source, recorded, report, sums.add_new)
    report.finish()
    _report_load(source, summary, sums, answer)
    _report_rejects(source, rejects, options, answer)
    if rejects.count and not (summary.new or summary.known) and _may_be_document(options.file):
        answer.warn(with_config(_document_advice(options.file), options.config))
    if options.strict and checked != loaded:
        complain(_changed_message(source.batch, checked, loaded))
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
        async with _ledger(config, options, source.batch) as facts:
            lines = _checked_lines(config, options, facts.types, source, facts.older)
            is_new = sums.add_new if sums is not None else _nothing
            preflight = Preflight(
                batch=source.batch, reading=reading, ask=facts.ask, reject=report.bad, is_new=is_new
            )
            return await preflight.read(_recorded(lines, sums, digest))
    finally:
        reading.close(wait=False)


def _checked_lines(
    config: Config,
    options: argparse.Namespace,
    reported: frozenset[str],
    source: Input,
    older: "OlderAgents",
) -> Iterator[ValidLine | InvalidLine]:
    """Return the input's lines; tasks that would certainly fail become bad lines."""
    types = KnownTypes(configured=config.known_types, reported=reported, allowed=options.allow_type)
    routes = KnownRoutes(config=config, allowed=options.routes_allowed, older=older.without_routes)
    prompts = MissingPrompts(config=config, allowed=options.allow_type)
    blank = BlankDocuments(config.roots(), own_files(config))
    sources = KnownSources(older.with_files_only)
    checks = (types.check, prompts.check, routes.check, sources.check, blank.check)
    return checked(source.lines(), checks)


@dataclass(frozen=True, slots=True)
class OlderAgents:
    """Running agents of older versions.

    Some give up lines with routes; some read only files as documents.
    """

    without_routes: Sequence[str] = ()
    with_files_only: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """What the ledger knows of a load: how its ids clash (`ask`), and its agents.

    `ask` is None if nothing can clash, as before the first load.
    """

    ask: Ask | None = None
    types: frozenset[str] = frozenset()
    older: OlderAgents = OlderAgents()


@asynccontextmanager
async def _ledger(
    config: Config, options: argparse.Namespace, batch: str
) -> AsyncIterator[LedgerFacts]:
    """Yield what the ledger knows; create nothing.

    A dry run goes on without a ledger that does not answer: it only estimates, and no result
    depends on it.
    """
    if is_ledger_missing(config):
        yield LedgerFacts()
        return
    async with AsyncExitStack() as stack:
        try:
            ledger = await stack.enter_async_context(opened_ledger(config))
        except (UnreachableError, UnsafeStateError) as error:
            if not options.dry_run:
                raise
            note(
                "ids are not compared with those of the ledger, and the types that only agents "
                f"know are missing: {error}"
            )
            yield LedgerFacts()
            return
        yield LedgerFacts(
            await _clash_finder(ledger, batch, options.group),
            await ledger.transactions.read(reported_types.read_types, options.group),
            await _older(ledger, options.group),
        )


async def _older(ledger: LedgerParts | Parts, group: str) -> OlderAgents:
    read = ledger.transactions.read
    return OlderAgents(
        await read(migrations.agents_before, LANES_FROM, group),
        await read(migrations.agents_before, SOURCES_FROM, group),
    )


async def _clash_finder(ledger: LedgerParts, batch: str, group: str) -> Ask | None:
    into = await ledger.transactions.read(store.own_batch, batch, group, store.Origin.LOAD)
    if into is None:
        return None

    async def ask(tasks: Sequence[NewTask]) -> store.Accepted:
        return await ledger.transactions.read(store.matching, into, tasks)

    return ask


def _nothing(_line: ValidLine) -> None:
    pass


def _report_check(
    source: Input,
    options: argparse.Namespace,
    expected: Summary,
    sums: Sums,
    rejects: Rejects,
    answer: CommandAnswer,
) -> int:
    answer.put(loaded=0, unsent=0, **_facts(expected, sums))
    if options.dry_run:
        result = f"{_result(expected, 'to load')}{_cost(expected, sums)}"
        answer.say(f"dry run: nothing is loaded; {result}")
        _warn(sums, answer)
    if rejects.count:
        refused = number_of(rejects.count, f"bad {source.noun}")
        answer.say(f"nothing is loaded: {refused} in {rejects.path}; {_repair_advice(source)}")
    return 1 if rejects.count else 0


async def _open_batch(
    parts: Parts, options: argparse.Namespace, name: str
) -> tuple[store.Batch, batch_options.TaskDefaults]:
    """Open a batch for a load; return it, and what holds for lines that do not say otherwise."""
    write = parts.transactions.write
    into = await write(store.open_batch, name, parts.topics.group)
    await write(store.begin_load, into)
    if options.routes_allowed is not None:
        await write(batch_options.allow_routes, into.id, options.routes_allowed)
    given = batch_options.TaskDefaults(options.tenant, options.priority)
    defaults = await write(batch_options.set_defaults, into.id, given)
    if options.output_uri is not None:
        await write(batch_options.send_outputs, into.id, options.output_uri)
    return into, defaults


async def _load(
    parts: Parts,
    options: argparse.Namespace,
    source: Input,
    lines: Iterable[ValidLine | InvalidLine],
    report: BadLineReport,
    is_new: Callable[[ValidLine], None],
) -> Summary:
    """Load the lines of an open input; an input that cannot be opened leaves no batch behind."""
    batch = source.batch
    into, defaults = await _open_batch(parts, options, batch)
    before = await parts.transactions.read(tally.loaded, into.id)
    crash.reach("load.batch_made")
    reading, counting = ThreadExecutor("reading"), ThreadExecutor("counting")
    counted_all = asyncio.ensure_future(counting(source.count))
    with bar(f"loading {batch}") as shown_bar:
        loading = LoadProgress(shown=shown_bar, share=source.share, clock=parts.clock, batch=batch)
        loader = Loader(
            transactions=parts.transactions,
            reading=reading,
            publisher=parts.publisher,
            topics=parts.topics,
            clock=parts.clock,
            ledger_id=parts.ledger_id,
            into=into,
            max_attempts_of=parts.config.max_attempts_of,
            defaults=defaults,
            overflow=parts.config.tenant_defaults.overflow,
            backlog=_backlog_limit(parts, options),
            reject=report.bad,
            is_new=is_new,
            progress=loading.show,
            traces=parts.traces,
        )
        loader.summary.before = before
        try:
            with _noting_a_break(loader, batch):
                return await loader.load(lines)
        finally:
            counted_all.cancel()
            for executor in (reading, counting):
                executor.close(wait=False)


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
    lines: Iterable[ValidLine | InvalidLine], sums: Sums | None, digest: InputDigest
) -> Iterator[ValidLine | InvalidLine]:
    for line in lines:
        digest.add(line)
        if sums is not None and isinstance(line, ValidLine):
            sums.add(line)
        yield line


def _changed_message(batch: str, checked: InputDigest, loaded: InputDigest) -> str:
    lines = number_of(checked.lines, "line")
    counts = f"{lines} checked, but the {loaded.lines:,} loaded lines differ from them"
    return (
        f"the input changed after it was checked: {counts}; "
        f"cancel batch {batch!r}, or load the input again when nobody writes to it"
    )


def _report_load(source: Input, summary: Summary, sums: Sums, answer: CommandAnswer) -> None:
    answer.put(loaded=summary.new, unsent=summary.unsent, **_facts(summary, sums))
    answer.say(f"batch {source.batch}: {_result(summary, 'loaded')}{_cost(summary, sums)}")
    if summary.new and summary.before > summary.known:
        answer.warn(
            f"batch {source.batch} had {number_of(summary.before, 'task')} already; "
            "to keep inputs apart, name another batch with --batch"
        )
    if summary.unsent:
        answer.warn(
            f"{number_of(summary.unsent, 'record')} not on the topic yet ({summary.errors[0]}); a "
            "running agent will send them"
        )
    _warn(sums, answer)


def _warn(sums: Sums, answer: CommandAnswer) -> None:
    for warning in sums.warnings():
        answer.warn(warning)


def _report_rejects(
    source: Input, rejects: Rejects, options: argparse.Namespace, answer: CommandAnswer
) -> None:
    """Print how to get each bad line into the same batch.

    The way is the rejects file, or the input itself for lines without text in that file.
    """
    if not rejects.count:
        return
    path, batch = shlex.quote(str(rejects.path)), shlex.quote(source.batch)
    repair_input = f"{_repair_advice(source)} with --batch {batch}"
    allowed = "".join(f" --allow-type {shlex.quote(name)}" for name in options.allow_type)
    textless = rejects.count - rejects.repairable
    repair_rejects = (
        f"repair `text` there, then: python -m producer load {path} --batch {batch} --group "
        f"{options.group}{allowed}"
    )
    advice = with_config(repair_rejects, options.config) if rejects.repairable else repair_input
    refused = number_of(rejects.count, f"bad {source.noun}")
    answer.say(f"{refused} in {rejects.path}; {advice}")
    if rejects.repairable and textless:
        answer.say(
            f"{textless:,} of them have no `text` there; once the others are loaded, {repair_input}"
        )


def _may_be_document(file: str | None) -> bool:
    return file not in {None, "-"} and not _OF_LINES.intersection(Path(str(file)).suffixes)


def _document_advice(file: str) -> str:
    load = f"python -m producer load --documents {shlex.quote(file)}"
    return (
        f"no line of {file} is a task line; if it is a document, load it as one: "
        f"{load} --prompt 'Summarize: {{document}}'"
    )


def _repair_advice(source: Input) -> str:
    """Return the advice for lines that cannot be repaired in the rejects file."""
    return (
        "repair or convert the documents, and load them again"
        if source.documents
        else "repair the input, and load it again"
    )


def _facts(summary: Summary, sums: Sums) -> dict[str, Any]:
    """Return what a load did, or would do, for `--json`."""
    estimate = {**sums.estimate.as_json(), **sums.time.as_json()}
    return {"new": summary.new, "known": summary.known, "estimate": estimate}


def _result(summary: Summary, done: str) -> str:
    if not (summary.new or summary.known or summary.bad):
        return "the input has no task line"
    known = f"{summary.known:,} loaded already" if summary.known else ""
    new = f"{number_of(summary.new, 'task')} {done}" if summary.new else "nothing new"
    return f"{new}, {known}" if known else new


def _cost(summary: Summary, sums: Sums) -> str:
    """Return the cost of the new tasks, empty if there are none."""
    return "".join(f"; {part}" for part in (sums.estimate, sums.time) if summary.new and str(part))
