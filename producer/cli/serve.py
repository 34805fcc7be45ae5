"""`serve`: takes tasks and shows results over HTTP until it is stopped."""

import argparse
import asyncio
import logging
import signal
from dataclasses import replace

from docllm.producer.app import opened
from docllm.producer.metrics.http_server import require_token
from docllm.producer.screen.output import announce
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.config import Config

log = logging.getLogger("docllm.producer.serve")
log.setLevel(logging.INFO)  # commands log warnings only
CONNECTIONS = 8  # to the database


async def serve(config: Config, options: argparse.Namespace) -> int:
    """Serve the group until a signal comes; requests that run are answered first."""
    try:
        from docllm.producer.serve.app import application  # noqa: PLC0415 - they are an extra
        from docllm.producer.serve.server import Server, listen  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"serve needs the extra `serve` ({error.name} is missing); run: "
            "pip install 'docllm[serve]'"
        ) from None
    require_token(options.listen, config.http_token)
    listening = listen(options.listen)
    hosts = {options.listen.host, *options.allowed_host}
    async with (
        opened(config, options.group, connections=CONNECTIONS) as parts,
        application(parts, hosts=hosts) as gate,
    ):
        server = Server(gate)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, server.stop)
        shown = replace(options.listen, port=listening.getsockname()[1])
        address = f"group {options.group}: http://{shown}/v1"
        announce(log, address)
        await server.serve(sockets=[listening])
    return 0
