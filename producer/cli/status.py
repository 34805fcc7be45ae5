"""`status`: the command that shows the group."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from rich.text import Text

from docllm.producer.app import SCREEN_S, LedgerParts, opened_ledger
from docllm.producer.ledger.status import group_status as statuses
from docllm.producer.ledger.status.retries import TiersOf
from docllm.producer.screen.group_status import status_text
from docllm.producer.screen.output import note, say_json, say_styled, width
from docllm.schemas.runtime.next_command import with_config
from docllm.schemas.settings.config import Config

REFRESH_S = 1.0

ReadStatus = Callable[[], Awaitable[statuses.GroupStatus]]


async def status(config: Config, options: argparse.Namespace) -> int:
    """Show the group: live on a terminal, once when piped, as JSON with --json."""
    async with opened_ledger(config, reads_s=SCREEN_S) as parts:
        read = partial(_read, parts, options, config.tiers_of)
        if options.batch is not None:
            from docllm.producer.cli.selection_options import chosen_batches  # noqa: PLC0415 - if named

            await chosen_batches(parts, options)
        if options.json:
            group_status = await read()
            waits = tuple(
                wait._replace(text=with_config(wait.text, options.config))
                for wait in group_status.waits
            )
            say_json(replace(group_status, waits=waits).as_json())
        elif _may_be_live() and not options.once:
            await _live(read, options)
        else:
            group_status = await read()
            say_styled(_screen(group_status, options, width(), sys.stdout.encoding))
            if config.embedded and not group_status.batches:
                note(f"looked in {config.data_dir.resolve()}")
    return 0


def _may_be_live() -> bool:
    """Return whether stdout is a terminal that can draw over its lines."""
    if not sys.stdout.isatty():
        return False
    from rich.console import Console  # noqa: PLC0415 - it takes long to load, for terminals only

    return not Console().is_dumb_terminal


def _screen(
    group_status: statuses.GroupStatus,
    options: argparse.Namespace,
    width: int,
    encoding: str | None,
    height: int | None = None,
) -> Text:
    if options.batch is None:
        group_status = group_status.without_empty_batches()
    return status_text(
        group_status,
        width,
        lambda text: with_config(text, options.config),
        encoding,
        height,
    )


async def _read(
    parts: LedgerParts, options: argparse.Namespace, tiers_of: TiersOf
) -> statuses.GroupStatus:
    group, batch = options.group, options.batch
    return await parts.transactions.read(
        statuses.read_group,
        group,
        batch,
        archived=options.archived,
        tiers_of=tiers_of,
    )


async def _live(read: ReadStatus, options: argparse.Namespace) -> None:
    """Refresh until every task is final, or until Ctrl-C."""
    from rich.console import Console  # noqa: PLC0415 - see above
    from rich.live import Live  # noqa: PLC0415

    console, encoding = Console(), sys.stdout.encoding  # Live replaces stdout
    with Live(console=console, auto_refresh=False) as live:
        while True:
            group_status = await read()
            screen = _screen(group_status, options, console.width, encoding, console.height)
            live.update(screen, refresh=True)
            if not any(batch.open for batch in group_status.batches):
                return
            await asyncio.sleep(REFRESH_S)
