"""Types of command-line arguments.

Each function returns a value, or raises the error that argparse shows with exit code 2.
"""

import argparse
import math
from collections.abc import Callable
from datetime import datetime, timedelta

from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.address import Address
from docllm.schemas.task.allowed_uris import folder_uri
from docllm.schemas.task.line import field_checks
from docllm.schemas.task.line.strict_json import LineError
from docllm.schemas.task.record.topics import Topics, duration_s
from docllm.schemas.task.task_types import is_name

MAX_NUMBER = 10**18 - 1  # the largest readable number that ledgers and libraries can count to
MIN_A_SECOND = 1 / 3600
# Of one topic; more would stop a cluster before it could report an error.
MAX_PARTITIONS = 10_000
MAX_REPLICAS = 1_000
MAX_AGENTS = 10_000


def up_to(most: int, least: int = 1) -> Callable[[str], int]:
    """Return a parser for whole numbers from `least` to `most`."""

    def count(text: str) -> int:
        if not text.isdecimal() or len(text) > len(str(most)) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a whole number from {least} to {most:,}"
            )
        return int(text)

    return count


def utf8_text(text: str) -> str:
    """Return the text; refuse text that is not UTF-8, because no ledger can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not UTF-8") from None
    return text


def named(text: str) -> str:
    """Return a name; refuse an empty name, and a name that no ledger can hold."""
    if not text:
        raise argparse.ArgumentTypeError(
            "the value is empty; write a value, or leave the option out"
        )
    return utf8_text(text)


def type_name(text: str) -> str:
    """Return the name of a type of task; refuse a name that no line can have."""
    if not is_name(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a type; use 1 to 64 letters, digits, dots, dashes and underscores, "
            "a letter or digit first"
        )
    return text


def seconds(text: str) -> int:
    """Return the seconds of a duration such as `90s` or `10m`."""
    try:
        return duration_s(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_wait(parser: argparse.ArgumentParser) -> None:
    """Add the option of every program that needs servers."""
    parser.add_argument(
        "--wait",
        type=seconds,
        default=0,
        metavar="TIME",
        help="wait for servers that are not up yet, such as 60s",
    )


def time_or_delay(text: str) -> datetime | timedelta:
    """Return a time in UTC, or the time from now on that a text such as `+2h` means."""
    try:
        if text.startswith("+"):
            return timedelta(seconds=duration_s(text[1:]))
        time: datetime = field_checks.instant("--not-before", text)
    except (ConfigError, LineError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time; write +2h, or RFC 3339 with a zone, "
            "such as 2027-01-31T18:00:00Z"
        ) from None
    return time


def address(text: str) -> Address:
    """Return an address to listen on."""
    try:
        return Address.read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no address; {error}") from None


def tenant_name(text: str) -> str:
    """Return the name of a tenant; refuse a name that no line can have."""
    if not is_name(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a tenant; use 1 to 64 letters, digits, dots, dashes and underscores, "
            "a letter or digit first"
        )
    return text


def route_names(text: str) -> tuple[str, ...]:
    """Return the names of routes from a text with commas; refuse an empty list."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise argparse.ArgumentTypeError(
            "no route is named; write for example fast,other, or leave the option out"
        )
    return names


def output_uri(text: str) -> str:
    """Return the URI of a folder for results; refuse another text."""
    try:
        return field_checks.output_folder("--output-uri", text)
    except LineError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error.error}; {error.fix}") from None


def folder(text: str) -> str:
    """Return the URI of a folder, which is named by its path or by a URI; refuse another text."""
    try:
        return folder_uri(named(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no folder; {error}") from None


def group(text: str) -> str:
    """Return a group name; refuse a name that no topic can have."""
    try:
        return Topics(text).group
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def per_second(text: str) -> float:
    """Return N of `N/s` or `N`.

    Refuses a rate so slow that the next item would be due at a time that no ledger can store.
    """
    try:
        rate = float(text.removesuffix("/s"))
    except ValueError:
        rate = 0.0
    if not 0 < rate < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate; write for example 50/s or 0.5/s")
    if rate < MIN_A_SECOND:
        raise argparse.ArgumentTypeError(
            f"{text!r} is less than one an hour; write for example 0.01/s, which is 36 an hour"
        )
    return rate
