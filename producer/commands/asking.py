"""Asks a person before something is done that costs money."""

import argparse
import sys

from producer.screen import note
from schemas.errors import ConfigError
from schemas.lanes import ThreadLane


def require_answer(options: argparse.Namespace) -> None:
    """Raise ConfigError where nobody can be asked and nobody has agreed."""
    if not options.yes and not sys.stdin.isatty():
        raise ConfigError("nobody can be asked here: look with --dry-run, then agree with --yes")


async def agreed(options: argparse.Namespace, question: str) -> bool:
    """Return whether a person agrees, with --yes or now."""
    if options.yes:
        return True
    note(f"{question} [y/N]")
    asking = ThreadLane("question")  # on a thread, so that Ctrl-C is heard; one of our own, for which the event loop does not wait then
    try:
        answer = await asking(sys.stdin.readline)
    finally:
        asking.close(wait=False)
    return answer.strip().lower() in {"y", "yes"}
