"""`python -m agent`: arguments, signals, exit codes. What it starts is made by `app`."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import uvloop

from agent import app, rehearsal
from agent.lifecycle import Stop
from agent.rehearsal.child import rehearsal_child
from agent.telemetry import configure_logging
from producer.app import opened
from schemas import collector
from schemas.config import Config, LLMConfig
from schemas.errors import DocllmError, UnreachableError
from schemas.settings import load_config, require_llm
from schemas.version import VERSION

log = logging.getLogger("agent")

FORCED = 130
EXAMPLES = """\
examples:
  python -m agent --group docllm                 run until told to stop (Ctrl-C drains)
  python -m agent --group docllm --until-done    leave when every task of the group is final
  python -m agent --until-done --rehearsal       without a provider: the answers are extracts
  python -m agent reaper --group docllm          only repair what dead agents left behind
  python -m agent rehearsal-llm --port 8000      an OpenAI-compatible server without a model

exit codes: 0 done or drained, 2 usage, 3 a server cannot be reached, 4 wrong schema or topics,
            5 internal, 130 forced by a third signal
"""


def main(argv: Sequence[str]) -> int:
    """Run one command; return its exit code."""
    if argv[:1] == ["rehearsal-llm"]:
        return rehearsal.run(argv[1:])
    options = _parser().parse_args(argv)
    configure_logging(options.log_level)
    command = _reap if options.command == "reaper" else _run
    try:
        config = load_config(flags=_flags(options), environ=os.environ, cwd=Path.cwd())
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(command(config, options))
    except DocllmError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except Exception:  # a bug of ours: shown whole, with the exit code that scripts know it by
        log.exception("internal error")
        return DocllmError.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m agent",
        description="Takes tasks from a group's topics, calls the LLM, settles the results.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", choices=["run", "reaper"], default="run", help=argparse.SUPPRESS)
    parser.add_argument("--group", default="docllm", help="consumer group and topic prefix (docllm)")
    parser.add_argument("--slots", metavar="N", help="calls in flight at once (64)")
    parser.add_argument("--until-done", action="store_true", help="leave when the group's work is done")
    parser.add_argument("--rehearsal", action="store_true", help="use the rehearsal LLM, in a child process")
    parser.add_argument("--rehearsal-options", default="", metavar="TEXT", help="its options, for example '--latency 1 --faults 429=0.05'")
    parser.add_argument("--config", metavar="FILE", help="configuration file (docllm.toml)")
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"], help="what to log (INFO)")
    parser.add_argument("--version", action="version", version=f"docllm {VERSION}")
    return parser


def _flags(options: argparse.Namespace) -> dict[str, object]:
    return {name: value for name, value in (("agent.slots", options.slots), ("config", options.config)) if value is not None}


async def _run(config: Config, options: argparse.Namespace) -> None:
    stop = _signals()
    if not options.rehearsal:
        require_llm(config)
    async with opened(config, options.group) as parts, _llm_settings(config, options) as llm:
        log.info("%s", app.describe(parts))
        if options.rehearsal:
            log.warning("rehearsal LLM: the answers are extracts of the documents, no model is asked")
        async with app.built(replace(parts, config=replace(config, llm=llm)), rehearsal=options.rehearsal) as agent:
            if options.until_done and not await agent.any_work():
                log.info("group %s has no tasks: nothing to do", options.group)
                await agent.leave()
                return
            collector.calm()
            try:
                await agent.run(stop, until_done=options.until_done, drain_timeout_s=config.agent.drain_timeout_s)
            except UnreachableError as error:
                _give_up(error)
            log.info("%s", agent.summary())


def _give_up(error: UnreachableError) -> NoReturn:
    """End a drain whose server does not answer: threads that wait for it must not keep the process beyond its grace."""
    sys.stderr.write(f"error: {error}\n")
    sys.stderr.flush()
    os._exit(error.exit_code)


async def _reap(config: Config, options: argparse.Namespace) -> None:
    stop = _signals()
    async with opened(config, options.group) as parts, app.reaping(parts) as reaping:
        log.info("reaping for group %s", options.group)
        await reaping.run(stop)


@asynccontextmanager
async def _llm_settings(config: Config, options: argparse.Namespace) -> AsyncIterator[LLMConfig]:
    if not options.rehearsal:
        yield config.llm
        return
    async with rehearsal_child(options.rehearsal_options) as url:
        yield replace(config.llm, base_url=url, api_key=None, model="rehearsal")


def _signals() -> Stop:
    """The first signal drains, the second does so at once, the third ends the process."""
    stop, loop = Stop(), asyncio.get_running_loop()

    def take() -> None:
        if stop.hurry.is_set():
            os._exit(FORCED)
        stop.signal()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, take)
    return stop


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
