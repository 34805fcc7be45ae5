"""Asks a person before a command does something that costs money."""

import argparse
import sys

from docllm.producer.screen.output import note
from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.executors import ThreadExecutor


def require_answer(options: argparse.Namespace) -> None:
    """Raise ConfigError if nobody can be asked and --yes is not set."""
    if not options.yes and not sys.stdin.isatty():
        raise ConfigError(
            "this needs a terminal to ask you; look with --dry-run, then run it with --yes"
        )


async def agreed(options: argparse.Namespace, question: str) -> bool:
    """Return whether a person agrees, either with --yes or by an answer now."""
    if options.yes:
        return True
    note(f"{question} [y/N]")
    # A thread lets Ctrl-C be heard. It is our own thread, so that the event loop does not wait for
    # it.
    asking = ThreadExecutor("question")
    try:
        answer = await asking(sys.stdin.readline)
    finally:
        asking.close(wait=False)
    return answer.strip().lower() in {"y", "yes"}
