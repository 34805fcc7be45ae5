"""`erase`: deletes what a person asks to be erased, and says what it cannot reach."""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

from docllm.producer.app import LedgerParts, opened_ledger
from docllm.producer.cli.cancel import actor
from docllm.producer.ledger.retention import erasure_rows
from docllm.producer.ledger.retention.erasure_rows import Erased, Subject
from docllm.producer.retention.erasure import Erasure
from docllm.producer.screen.live import bar
from docllm.producer.screen.output import CommandAnswer, agreed, answering, require_answer
from docllm.producer.text.printable import shown
from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.next_command import with_config
from docllm.schemas.settings.config import Config
from docllm.schemas.text.wording import number_of

OUTPUTS_SHOWN = 20


async def erase(config: Config, options: argparse.Namespace) -> int:
    """Erase a tenant or an id; return 1 if tasks of it still run."""
    if (options.tenant is None) == (options.id is None):
        raise ConfigError("name what to erase: either --tenant NAME or --id ID")
    if not options.dry_run:
        require_answer(options)
    subject = Subject(options.tenant, options.id, options.batch)
    async with opened_ledger(config) as parts:
        with answering(options) as answer:
            read, group = parts.transactions.read, options.group
            batches = await read(erasure_rows.batches, group, subject)
            tasks = await read(erasure_rows.count, subject, list(batches))
            loaded = "" if subject.tenant is None else " loaded"
            answer.say(
                f"{number_of(tasks, 'task')}{loaded} in {len(batches):,} "
                f"{'batch' if len(batches) == 1 else 'batches'}",
                dry_run=options.dry_run,
                batches=list(batches.values()),
                tasks=tasks,
                erased=0,
                records=0,
                running=0,
                outputs=[],
                unread=[],
                archives=await read(erasure_rows.archives, list(batches)),
            )
            question = "erase their inputs, results, errors and ids? Open tasks are cancelled"
            if options.dry_run or not await agreed(options, question):
                _tell_limits(Erased(), answer, options, config.texts_folder)
                answer.say("nothing is erased")
                return 0
            erased = await _erased(parts, group, subject, batches, tasks)
            answer.say(
                f"erased {number_of(erased.tasks, 'task')} and "
                f"{number_of(erased.records, 'quarantined record')}",
                erased=erased.tasks,
                records=erased.records,
                running=len(erased.running),
                outputs=erased.outputs,
                unread=erased.unread,
                archives=await read(erasure_rows.archives, list(batches)),  # one may have begun
            )
            _tell_limits(erased, answer, options, config.texts_folder)
    return 1 if erased.running else 0


async def _erased(
    parts: LedgerParts, group: str, subject: Subject, batches: Mapping[int, str], tasks: int
) -> Erased:
    with bar("erasing") as progress:
        erasure = Erasure(
            transactions=parts.transactions,
            clock=SystemClock(),
            group=group,
            subject=subject,
            progress=lambda done: progress.show(done, tasks),
        )
        return await erasure.run(batches, actor=actor(), tasks=tasks)


def _tell_limits(
    erased: Erased, answer: CommandAnswer, options: argparse.Namespace, texts: Path
) -> None:
    """Say what is left, and who can delete it."""
    archives = answer.document(options.group)["archives"]
    for line in _limits(erased, archives, options.group, texts):
        answer.say(with_config(line, options.config))


def _limits(erased: Erased, archives: list[str], group: str, texts: Path) -> Iterator[str]:
    if erased.running:
        yield f"{number_of(len(erased.running), 'task')} still running: run the same command again"
    for number in erased.unread[:OUTPUTS_SHOWN]:
        yield (
            f"quarantine:{number} cannot be read and may belong to the subject; look at it: "
            f"docllm show quarantine:{number} --group {group}"
        )
    yield "not erased by this command; delete yourself what applies:"
    for uri in erased.outputs[:OUTPUTS_SHOWN]:
        yield f"  result: {shown(uri)}"
    if len(erased.outputs) > OUTPUTS_SHOWN:
        yield f"  ... and {len(erased.outputs) - OUTPUTS_SHOWN} results more (--json has all)"
    for uri in archives:
        yield f"  archive: {shown(uri)}"
    yield (
        "  records on topics: agents trim tasks that are done within minutes; dead letters: "
        f"docllm dead trim --group {group}"
    )
    yield (
        "  for a day after their last use: locks that its tasks named without the tenant or id; "
        "for seconds: reports of agents that run"
    )
    yield (
        "  texts of converted documents, until later ones displace them; you can delete the folder "
        f"while agents run, on each of their machines: {shown(str(texts))}"
    )
    yield "  the audit and the list of replays, if a person named the tenant or id to a replay"
    yield "  traces at the collector, if you trace: their spans have the ids and the tenant's name"
    yield "  backups and binary logs of the database, logs, the LLM's provider"
