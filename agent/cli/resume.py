"""`docllm agent resume ROUTE`: tells running agents that a route may take calls again.

The command writes to the ledger, where agents find it. It reads no agent's memory.
"""

import argparse
from collections.abc import Sequence

from docllm.agent.ledger.route_resumes import routes_in_use
from docllm.agent.routes import RouteNames
from docllm.producer.app import opened_ledger
from docllm.producer.cli import running
from docllm.producer.cli.cancel import actor
from docllm.producer.ledger.long_waits import resume
from docllm.producer.screen.output import answering
from docllm.schemas.errors import ConfigError
from docllm.schemas.ledger.database import Connection
from docllm.schemas.settings.config import Config

MAX_SHOWN = 20


def run(options: argparse.Namespace, _argv: Sequence[str]) -> int:
    """Resume a route; return the exit code."""
    options.run = _resume
    return running.run(options)


async def _resume(config: Config, options: argparse.Namespace) -> int:
    group, route = options.group, options.route

    def order(connection: Connection) -> None:
        route_names = {*RouteNames(config).configured, *routes_in_use(connection, group)}
        if route not in route_names:
            raise ConfigError(
                f"group {group} has no route {route!r}; known are: {_listed(route_names)}"
            )
        resume(connection, group, route, actor())

    with answering(options) as answer:
        async with opened_ledger(config) as parts:
            await parts.transactions.write(order)
        answer.say(
            f"route {route} of group {group}: running agents call it again within three seconds, "
            "first with one call",
            route=route,
            resumed=True,
        )
    return 0


def _listed(routes: set[str]) -> str:
    rest = f", and {len(routes) - MAX_SHOWN} more" if len(routes) > MAX_SHOWN else ""
    return ", ".join(sorted(routes)[:MAX_SHOWN]) + rest
