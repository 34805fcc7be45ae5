"""What the arguments of commands may be: each function returns a value, or raises what argparse shows with exit code 2."""

import argparse
import math
from collections.abc import Callable

from schemas.errors import ConfigError
from schemas.topics import Topics

MOST = 10**18 - 1  # what ledgers and libraries can count to, in a number that can be read
LEAST_A_SECOND = 1 / 3600
MOST_PARTITIONS, MOST_REPLICAS = 10_000, 1_000  # of one topic; more would stop a cluster before it told


def up_to(most: int, least: int = 1) -> Callable[[str], int]:
    """Return what reads a whole number from `least` on."""

    def count(text: str) -> int:
        if not text.isdecimal() or len(text) > len(str(most)) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most:,}")
        return int(text)

    return count


def written(text: str) -> str:
    """Return a text that a ledger can hold; refuse one that is no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not UTF-8") from None
    return text


def named(text: str) -> str:
    """Return a text that names something: one that a ledger can hold, and not empty."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty and names nothing; write what is meant, or leave it out")
    return written(text)


def group(text: str) -> str:
    """Return the name of a group; refuse one that no topic can have."""
    try:
        return Topics(text).group
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def per_second(text: str) -> float:
    """Return N of `N/s` or `N`; refuse one so slow that the next item would be due when no ledger can write it down."""
    try:
        found = float(text.removesuffix("/s"))
    except ValueError:
        found = 0.0
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate; write for example 50/s or 0.5/s")
    if found < LEAST_A_SECOND:
        raise argparse.ArgumentTypeError(f"{text!r} is less than one an hour; write for example 0.01/s, which is 36 an hour")
    return found
