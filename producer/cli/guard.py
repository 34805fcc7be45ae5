"""`guard`: shows batches that wait because nearly all tasks failed, and opens their guards."""

import argparse

from rich.text import Text

from docllm.producer.app import SCREEN_S, opened_ledger
from docllm.producer.cli.cancel import actor
from docllm.producer.ledger import guards
from docllm.producer.ledger.store import require_batch
from docllm.producer.screen.output import answering, fail, note, say_json, say_styled
from docllm.producer.text.printable import shown
from docllm.schemas.ledger.database import Connection
from docllm.schemas.runtime.next_command import with_config
from docllm.schemas.settings.config import Config
from docllm.schemas.task.guard import Guard

VERSION = 1


async def list_guards(config: Config, options: argparse.Namespace) -> int:
    """Show the raised guards."""
    async with opened_ledger(config, reads_s=SCREEN_S) as parts:
        raised = await parts.transactions.read(_raised, options)
    if options.json:
        document = {
            "version": VERSION,
            "group": options.group,
            "guards": [guards.as_json(guard) for guard in raised],
        }
        say_json(document)
        return 0
    for guard in raised:
        say_styled(_line(guard))
    advice = f"to let one run again: docllm guard open BATCH --group {options.group}"
    note(with_config(advice, options.config) if raised else "no guard is raised")
    return 0


def _line(guard: Guard) -> Text:
    """Return a guard as a line; what waits is red, as in `status`."""
    raised = f"{guard.raised_at:%Y-%m-%d %H:%M:%S} UTC"
    return Text.assemble(
        (shown(guard.title), "bold red"),
        f": {shown(guard.reason)}; raised {raised}; {guard.next_step_text}",
    )


async def open_guards(config: Config, options: argparse.Namespace) -> int:
    """Open the guards of a batch."""
    async with opened_ledger(config) as parts:
        raised = await parts.transactions.read(_raised, options)
        chosen = [
            guard
            for guard in raised
            if options.type in {None, guard.type} and options.route in {None, guard.route}
        ]
        if raised and not chosen:
            titles = "; ".join(guard.title for guard in raised)
            fail(
                options,
                f"batch {options.batch!r} has no guard of that type and route; its guards are: "
                f"{titles}",
            )
            return 1
        with answering(options) as answer:
            answer.put(batch=options.batch, opened=[guards.as_json(guard) for guard in chosen])
            for guard in chosen:
                await parts.transactions.write(guards.open_one, guard, actor(), "by hand")
                answer.say(f"{shown(guard.title)}: open; its tasks run again within seconds")
            if not raised:
                answer.say(f"no guard of batch {options.batch} is raised")
    return 0


def _raised(connection: Connection, options: argparse.Namespace) -> list[Guard]:
    """Return the raised guards of the named batch, or of all batches.

    Raises ConfigError if the group has no such batch.
    """
    if options.batch is not None:
        require_batch(connection, options.group, options.batch)
    return [
        guard
        for guard in guards.raised(connection, options.group)
        if options.batch in {None, guard.batch}
    ]
