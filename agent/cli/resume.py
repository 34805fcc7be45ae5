"""`docllm agent resume ROUTE`: tells running agents that a route may take calls again.

The command writes to the ledger, where agents find it. It reads no agent's memory.
"""

import argparse
import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace

from docllm.agent.ledger.route_resumes import routes_in_use
from docllm.agent.routes import RouteNames
from docllm.producer.app import opened_ledger
from docllm.producer.cli.cancel import actor
from docllm.producer.ledger.long_waits import resume
from docllm.producer.screen.command_answer import answering, fail
from docllm.producer.screen.output import note
from docllm.producer.text.printable import ShownFormatter, log_to_stderr, shown_traceback
from docllm.schemas.errors import ConfigError, DocllmError
from docllm.schemas.ledger.database import Connection
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.next_command import with_config
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.sources import current_folder, load_config

MAX_SHOWN = 20


def run(options: argparse.Namespace, _argv: Sequence[str]) -> int:
    """Resume a route; return the exit code."""
    log_to_stderr(ShownFormatter("%(message)s", config_file=options.config), "WARNING")
    try:
        config = load_config(
            flags={"config": options.config}, environ=os.environ, cwd=current_folder()
        )
        config = replace(config, up_by_s=SystemClock().now_s() + options.wait)
        with answering(options) as answer:
            sentence = asyncio.run(_resume(config, options.group, options.route))
            answer.say(sentence, route=options.route, resumed=True)
    except DocllmError as error:
        fail(options, with_config(str(error), options.config), code=error.code)
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - a bug of ours: shown whole, with its own exit code
        note(shown_traceback(error))
        return DocllmError.exit_code
    return 0


async def _resume(config: Config, group: str, route: str) -> str:
    async with opened_ledger(config) as parts:

        def work(connection: Connection) -> None:
            route_names = {*RouteNames(config).configured, *routes_in_use(connection, group)}
            if route not in route_names:
                raise ConfigError(
                    f"group {group} has no route {route!r}; known are: {_listed(route_names)}"
                )
            resume(connection, group, route, actor())

        await parts.transactions.write(work)
    return (
        f"route {route} of group {group}: running agents call it again within three seconds, first "
        "with one call"
    )


def _listed(routes: set[str]) -> str:
    rest = f", and {len(routes) - MAX_SHOWN} more" if len(routes) > MAX_SHOWN else ""
    return ", ".join(sorted(routes)[:MAX_SHOWN]) + rest
