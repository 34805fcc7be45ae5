"""`migrate`, `topics` and `check`: the operator's commands."""

import argparse
import asyncio
from functools import partial

from docllm.producer.app import open_database, opened, until_up
from docllm.producer.bus.topic_family import EMBEDDED_PARTITIONS, PARTITIONS, TopicFamily
from docllm.producer.screen.output import CommandAnswer, answering, note
from docllm.schemas.errors import ConfigError, UnsafeStateError
from docllm.schemas.ledger import migrations
from docllm.schemas.runtime.next_command import with_config
from docllm.schemas.settings.config import Config

_RESULTS = {"-": "not tried"}  # words of the screen that differ in `--json`
MAX_EMBEDDED = 1000  # partitions; every agent reads each of them in every pass


async def migrate(config: Config, options: argparse.Namespace) -> int:
    """Bring the ledger's schema to this version's."""
    # An index on a large table takes minutes. A client that gave up would leave the server working.
    opening = partial(open_database, config, timeout_s=None)
    database = await until_up("the database", partial(asyncio.to_thread, opening), config)
    try:
        before, after = await asyncio.to_thread(migrations.migrate, database)
    finally:
        database.close()
    with answering(options) as answer:
        answer.say(_migrated(before, after), before=before, after=after)
    return 0


def _migrated(before: str | None, after: str) -> str:
    """Return what `migrate` did, in words."""
    if after != (own := migrations.own_revision()):
        return f"schema {after} is newer than {own} of this version, and serves it: nothing to do"
    if before == after:
        return f"schema {after} is already in place"
    return f"schema {before or 'empty'} -> {after}"


async def topics(config: Config, options: argparse.Namespace) -> int:
    """Make, raise or compare a group's topics."""
    if config.embedded and (options.partitions or 0) > MAX_EMBEDDED:
        raise ConfigError(
            f"--partitions {options.partitions}: embedded topics have {MAX_EMBEDDED} at most; "
            "one machine needs a few"
        )
    async with opened(config, options.group, check_topics=False) as parts:
        with answering(options) as answer:
            if options.action == "check":
                return await _compare(parts.family, options, answer, embedded=config.embedded)
            return await _apply(parts.family, options, answer, embedded=config.embedded)


async def _apply(
    family: TopicFamily, options: argparse.Namespace, answer: CommandAnswer, *, embedded: bool
) -> int:
    """Make or raise the topics."""
    partitions = options.partitions
    default = EMBEDDED_PARTITIONS if embedded else PARTITIONS
    lines = await family.apply(partitions, options.replication_factor, default=default)
    answer.say("\n".join(lines) or "topics are as they should be", action="apply", changes=lines)
    wider = await family.wider_than(partitions) if partitions else {}
    for name, number in wider.items():
        note(f"{name} keeps its {number} partitions: they can be raised, never lowered")
    return 0


async def _compare(
    family: TopicFamily, options: argparse.Namespace, answer: CommandAnswer, *, embedded: bool
) -> int:
    """Print how the topics differ from what they must be.

    Embedded topics that were never made are still to come, which is no failure.
    """
    never_made = await family.never_made() if embedded else []
    differences = []
    if not never_made or await family.stored_ids() is not None:
        differences = await family.differences(leave_out=never_made)
    lines = [
        f"topic {name} is not there yet; the next load or agent creates it" for name in never_made
    ]
    remarks = await family.hidden_settings()
    remarks += [with_config(line, options.config) for line in await family.advice()]
    lines += differences + remarks
    answer.say(
        "\n".join(lines) or "topics are as they should be",
        action="check",
        missing=list(never_made),
        differences=differences,
        remarks=remarks,
    )
    if not differences:
        return 0
    advice = f"to change that: docllm topics apply --group {options.group}"
    note(with_config(advice, options.config))
    return UnsafeStateError.exit_code


async def check(config: Config, options: argparse.Namespace) -> int:
    """Check servers, schema, topics, the LLM and its routes; print one line for each.

    Returns the worst exit code.
    """
    # This loads the Redis client, which no other command needs.
    from docllm.producer.checks.checklist import Checks, outcome  # noqa: PLC0415

    checks = Checks(config, group=options.group).all()
    worst, failed = 0, set[str]()
    with answering(options) as answer:
        for entry in checks:
            code, word, message = await outcome(entry, failed)
            if word != "ok":
                failed.add(entry.name)
            worst = max(worst, code)
            message = with_config(message, options.config)
            answer.say(f"{word:7} {entry.name}: {message}")
            result = _RESULTS.get(word, word.lower())
            answer.add("checks", {"name": entry.name, "result": result, "message": message})
        answer.put(ok=worst == 0)
    return worst
