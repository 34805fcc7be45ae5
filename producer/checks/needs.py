"""The checks of what tasks will need: handlers, prices that fit models, the extra for documents."""

import asyncio
import difflib
import re
from importlib import metadata

from docllm.producer.input.conversion import INSTALL
from docllm.producer.input.handler_trial import broken_handlers
from docllm.schemas.errors import ConfigError, UnreachableError
from docllm.schemas.settings.account import account, configured_routes
from docllm.schemas.settings.config import Config

_PACKAGE = re.compile(r"[\w.-]++")
_ALIKE = 0.8


async def handlers(config: Config) -> str:
    """Return how many handlers can be imported.

    Raises ConfigError if one cannot, or UnreachableError where agents may run elsewhere.
    """
    named = [name for name, settings in config.types.items() if settings.handler is not None]
    broken = await asyncio.to_thread(broken_handlers, config.types)
    if not broken:
        return f"those of {', '.join(sorted(named))} can be imported"
    faults = "; ".join(f"types.{name}.handler: {reason}" for name, reason in broken.items())
    if config.embedded:
        raise ConfigError(faults)
    raise UnreachableError(f"{faults}; agents that start elsewhere may have it")


async def prices(config: Config) -> str:
    """Return that models and prices fit. Raises UnreachableError, which is no failure."""
    models = {account(config, route).model for route in configured_routes(config)}
    models |= {settings.model for settings in config.types.values()}
    used = {model for model in models if model}
    faults = [
        f"model {model} has no price: its cost is unknown, and is not counted"
        for model in sorted(used - config.prices.keys())
    ]
    for name in sorted(config.prices.keys() - used):
        alike = difflib.get_close_matches(name, used - config.prices.keys(), 1, _ALIKE)
        hint = f"; did you mean {alike[0]}?" if alike else ", unless lines name it"
        faults.append(f"prices.{name}: no route and no type has this model{hint}")
    if faults:
        raise UnreachableError("; ".join(faults))
    return "each model has its price"


async def documents() -> str:
    """Say what is not read without the extra."""
    return f"text is read; for PDF, DOCX and HTML, run: {INSTALL}"


def lacks_documents() -> bool:
    """Return whether a package of the extra for documents is not installed."""
    try:
        requirements = metadata.requires("docllm") or []
    except metadata.PackageNotFoundError:  # nobody installed it: it runs from a folder
        return False
    return any(_is_missing(line) for line in requirements if 'extra == "documents"' in line)


def _is_missing(requirement: str) -> bool:
    name = _PACKAGE.match(requirement)
    try:
        return name is not None and not metadata.version(name[0])
    except metadata.PackageNotFoundError:
        return True
