"""`exporter`: serves the metrics of a group until it is stopped.

Tested by tests/integration/test_exporter.py.
"""

import argparse
import asyncio
import signal
from dataclasses import replace

from producer.app import opened
from producer.metrics.exporter import Exporter
from producer.metrics.http_server import HttpServer
from producer.metrics.scale import ScaleLimits
from producer.screen.output import note
from schemas.errors import ConfigError
from schemas.ledger import migrations
from schemas.settings.config import Config


async def exporter(config: Config, options: argparse.Namespace) -> int:
    """Read the group every few seconds, and serve what was read."""
    if options.min_agents > options.max_agents:
        raise ConfigError(
            "--min-agents is above --max-agents; lower --min-agents, or raise --max-agents"
        )
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with opened(config, options.group, check_topics=False, connections=1) as parts:
        metrics = Exporter(
            transactions=parts.transactions,
            admin=parts.admin,
            topics=parts.topics,
            config=config,
            wanted=ScaleLimits(
                least=options.min_agents, most=options.max_agents, target_s=options.drain_target
            ),
            clock=parts.clock,
            schema=migrations.own_revision(),
        )
        server = HttpServer(address=options.listen, pages=metrics.pages, token=config.http_token)
        try:
            shown = replace(options.listen, port=server.port)
            note(f"metrics of group {options.group}: http://{shown}/metrics")
            reading = asyncio.ensure_future(metrics.read_forever())
            stopping = asyncio.ensure_future(stopped.wait())
            await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
            reading.cancel()
            if reading.done() and not reading.cancelled():
                reading.result()
        finally:
            server.close()
    return 0
