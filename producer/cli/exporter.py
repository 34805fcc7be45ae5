"""`exporter`: serves the metrics of a group until it is stopped."""

import argparse
import asyncio
import logging
import signal
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn

from docllm.producer.app import opened
from docllm.producer.metrics.exporter import EVERY_S, Exporter, GroupReaders
from docllm.producer.metrics.http_server import HttpServer
from docllm.producer.metrics.scale import ScaleLimits
from docllm.producer.screen.output import announce
from docllm.schemas.codes import Code
from docllm.schemas.errors import ConfigError, UnreachableError, UnsafeStateError
from docllm.schemas.ledger import migrations
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.outage import Outage, Words
from docllm.schemas.settings.config import Config

log = logging.getLogger("docllm.producer.exporter")
log.setLevel(logging.INFO)  # commands log warnings only
NOT_READY = Words("is not ready", "has not been ready", "is ready", Code.STATE_UNSAFE)


async def exporter(config: Config, options: argparse.Namespace) -> int:
    """Read the group every few seconds, and serve what was read."""
    if options.min_agents > options.max_agents:
        raise ConfigError(
            "--min-agents is above --max-agents; lower --min-agents, or raise --max-agents"
        )
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    metrics = Exporter(
        group=options.group,
        config=config,
        scale_limits=ScaleLimits(
            min_agents=options.min_agents,
            max_agents=options.max_agents,
            target_s=options.drain_target,
        ),
        clock=SystemClock(),
        schema=migrations.own_revision(),
    )
    server = HttpServer(address=options.listen, pages=metrics.pages, token=config.http_token)
    try:
        shown = replace(options.listen, port=server.port)
        address = f"metrics of group {options.group}: http://{shown}/metrics"
        announce(log, address)
        reading = asyncio.ensure_future(_read(metrics, config, options.group))
        stopping = asyncio.ensure_future(stopped.wait())
        await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
    finally:
        server.close()
    return 0


async def _read(metrics: Exporter, config: Config, group: str) -> NoReturn:
    """Read the group until cancelled; first wait for its ledger.

    An exporter that ended would leave Prometheus without the news that the ledger is away, or that
    nobody has run `migrate`. Raises UnreachableError and UnsafeStateError if waiting does not help.
    """
    clock = SystemClock()
    away = Outage(name="the ledger", clock=clock)
    not_migrated = Outage(name="the ledger", clock=clock, words=NOT_READY, patience_s=0)
    while True:
        try:
            async with opened(config, group, check_topics=False, connections=1) as parts:
                away.answered()
                not_migrated.answered()
                await metrics.read_forever(
                    GroupReaders(parts.transactions, parts.admin, parts.topics)
                )
        except (UnreachableError, UnsafeStateError) as error:
            if not error.may_pass:
                raise
            outage = away if isinstance(error, UnreachableError) else not_migrated
            outage.failed(error)
        await asyncio.sleep(EVERY_S)
