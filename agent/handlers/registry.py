"""Imports the handlers that the configuration names, as `package.module:function`."""

import importlib
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import docllm
from docllm.agent.handlers.attempt_context import AttemptContext, Handler
from docllm.agent.handlers.builtin.map_reduce import map_reduce
from docllm.agent.judge import one_line
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.config import TypeConfig

# Names beside docllm's package: its programs, and in a checkout the folder `schemas`.
_PROGRAMS = ("agent", "producer", "schemas")

RunFunction = Callable[[Callable[[Any], Any], AttemptContext], Awaitable[Any]]
InProcess = Callable[[str, TypeConfig], Handler]


def load(
    types: Mapping[str, TypeConfig],
    *,
    runner: Callable[[Callable[..., Any]], RunFunction],
    in_process: InProcess,
) -> dict[str, Handler]:
    """Return the handler of each type that names one.

    `runner` returns what runs a function. `in_process` makes the handler of a type that runs in
    processes: its module is not imported here.

    Modules of the current folder are found, as with `python -m`. Raises ConfigError with a line for
    each handler that cannot be used.
    """
    handlers: dict[str, Handler] = {}
    faults: list[str] = []
    for name, task_type in types.items():
        if task_type.handler is None:
            continue
        try:
            if _is_built_in(task_type.handler):  # the attempt itself is its context
                handlers[name] = _built_in(task_type)
                continue
            if task_type.run == "process":
                handlers[name] = in_process(name, task_type)
                continue
            function = function_of(task_type.handler)
            handlers[name] = partial(runner(function), function)
        except ConfigError as error:
            faults.append(f"types.{name}.handler: {error}")
    if faults:
        raise ConfigError("\n".join(faults))
    return handlers


def _is_built_in(path: str) -> bool:
    return path.startswith("docllm.") and function_of(path) is map_reduce


def _built_in(task_type: TypeConfig) -> Handler:
    if task_type.run == "process":
        raise ConfigError(f'{task_type.handler} runs in the agent; leave out: run = "process"')
    return map_reduce


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a function is awaited."""
    return any(map(inspect.iscoroutinefunction, _bodies(function)))


def is_generator(function: Callable[..., Any]) -> bool:
    """Return whether a call only makes a generator, so that the function's body does not run."""
    bodies = _bodies(function)
    return any(map(inspect.isgeneratorfunction, bodies)) or any(
        map(inspect.isasyncgenfunction, bodies)
    )


def _bodies(function: Callable[..., Any]) -> tuple[Any, Any]:
    """Return the function and, for a callable object, its `__call__` method."""
    return function, getattr(function, "__call__", None)  # noqa: B004 - the method itself


def function_of(path: str) -> Callable[..., Any]:
    """Return the function `package.module:function`, which takes the context and nothing else.

    Raises ConfigError.
    """
    module, _, name = path.partition(":")
    function: Callable[..., Any] | None = getattr(module_of(module), name, None)
    if function is None:
        raise ConfigError(
            f"module {module} has no function {name}; define it there, or name another one"
        )
    form = f"define it as: def {name}(context), or async def {name}(context)"
    if is_generator(function) or inspect.isclass(function) or not callable(function):
        raise ConfigError(f"{path} is not a function that returns its result; {form}")
    if not takes(function, 1):
        raise ConfigError(f"{path} must take the context and nothing else; {form}")
    return function


def takes(function: Callable[..., Any], arguments: int) -> bool:
    """Return whether a function can be called with so many arguments."""
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:  # a native function may have no signature
        pass
    return True


def _place_of(folder: Path) -> int:
    """Return where a folder goes in the path: last, but before docllm if it has names of docllm's.

    A handler that imports `agent` means the module beside it, not docllm's program.
    """
    names = [name for top in _PROGRAMS for name in (top, f"{top}.py")]
    own = str(Path(docllm.__file__).resolve().parents[1])
    if own in sys.path and any((folder / name).exists() for name in names):
        return sys.path.index(own)
    return len(sys.path)


def module_of(name: str) -> Any:
    """Import a module, also one of the current folder. Raises ConfigError."""
    folder = Path.cwd()
    if not {"", str(folder)}.intersection(sys.path):
        sys.path.insert(_place_of(folder), str(folder))
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
