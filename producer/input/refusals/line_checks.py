"""Checks each line by what a load knows beside the line itself: types, routes, documents."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

from docllm.producer.input.excluded_files import own_files
from docllm.producer.input.lines import InvalidLine, ValidLine
from docllm.producer.input.refusals.blank_documents import BlankDocuments
from docllm.producer.input.refusals.known_routes import KnownRoutes
from docllm.producer.input.refusals.known_types import KnownTypes
from docllm.producer.input.refusals.missing_prompts import MissingPrompts
from docllm.producer.input.refusals.own_objects import OwnObjects
from docllm.schemas.settings.claim_time import limit_of
from docllm.schemas.settings.config import Config

LineCheck = Callable[[ValidLine], ValidLine | InvalidLine]


def line_checks(
    config: Config,
    reported: Collection[str],
    *,
    types: Collection[str] = (),
    routes: tuple[str, ...] | None = None,
) -> list[LineCheck]:
    """Return the checks of each task that is loaded; one that would certainly fail is refused.

    `reported` are the types that agents know. `types` and `routes` are what the person who loads
    lets through, and to what the person bounds the routes. Raises ConfigError for an unknown route.
    """
    known = KnownTypes(
        configured=config.known_types,
        reported=reported,
        allowed=types,
        limit_of=partial(limit_of, config),
    )
    prompts = MissingPrompts(config=config, allowed=types)
    allowed = KnownRoutes(config=config, allowed=routes)
    blank = BlankDocuments(config.roots(), own=own_files(config))
    return [known.check, prompts.check, allowed.check, blank.check, OwnObjects().check]


def checked(
    lines: Iterable[ValidLine | InvalidLine], checks: Sequence[LineCheck]
) -> Iterator[ValidLine | InvalidLine]:
    """Yield the lines; one that a check refuses becomes a bad line, with the first reason."""
    for read in lines:
        line = read
        for check in checks:
            if isinstance(line, InvalidLine):
                break
            line = check(line)
        yield line
