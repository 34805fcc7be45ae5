"""Imports the handlers that the configuration names, as `package.module:function`."""

import importlib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.handlers.context import Handler
from agent.judge import one_line
from schemas.errors import ConfigError
from schemas.settings.config import TypeConfig


def load(types: Mapping[str, TypeConfig]) -> dict[str, Handler]:
    """Return the handler of each type that names one.

    Modules of the current folder are found, as with `python -m`. Raises ConfigError with a line for
    each handler that cannot be used.
    """
    handlers: dict[str, Handler] = {}
    faults: list[str] = []
    for name, task_type in types.items():
        if task_type.handler is not None:
            try:
                handlers[name] = _handler(task_type.handler)
            except ConfigError as error:
                faults.append(f"types.{name}.handler: {error}")
    if faults:
        raise ConfigError("\n".join(faults))
    return handlers


def _handler(path: str) -> Handler:
    module, _, name = path.partition(":")
    function = getattr(_module(module), name, None)
    if function is None:
        raise ConfigError(
            f"module {module} has no function {name}; define it there, or name another one"
        )
    if not inspect.iscoroutinefunction(function):
        raise ConfigError(
            f"{path} is not an async function; define it as: async def {name}(context)"
        )
    try:
        inspect.signature(function).bind(object())
    except TypeError:
        raise ConfigError(
            f"{path} must take the context and nothing else; define it as: "
            f"async def {name}(context)"
        ) from None
    handler: Handler = function
    return handler


def _module(name: str) -> Any:
    folder = str(Path.cwd())
    if not {"", folder}.intersection(sys.path):
        sys.path.append(folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"there is no module {error.name} in {folder} or on the path; "
                "correct the name, or install it"
            ) from None
        raise ConfigError(
            f"module {name} needs a module that is missing: {error.name}; install it"
        ) from None
    except Exception as error:
        raise ConfigError(
            f"module {name} cannot be imported: {one_line(f'{type(error).__name__}: {error}')}"
        ) from error
