"""Configured handlers are found, or refused with advice."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docllm.agent.handlers import map_reduce
from docllm.agent.handlers.functions import HandlerFunctions
from docllm.agent.handlers.registry import load as load_with
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.config import TypeConfig


def load(types: dict[str, TypeConfig]) -> dict[str, Any]:
    functions = HandlerFunctions(most_left=1, failed=lambda _reason: None)

    def in_process(name: str, settings: TypeConfig) -> Any:
        return name, settings.handler

    return dict(load_with(types, runner=functions.runner, in_process=in_process))


MODULE = """
import functools

class Runner:
    async def run(self, context):
        return "method"

async def good(context, *, language="en"):
    return "good"

async def none():
    return 1

async def two(context, more):
    return 2

def plain(context):
    return 3

async def stream(context):
    yield 4

def lines(context):
    yield 5

class Caller:
    async def __call__(self, context):
        return "caller"

caller = Caller()

value = 5
runner = Runner().run
partial = functools.partial(good, language="de")
"""


def forget_modules() -> None:
    """Forget the modules; other tests have modules of these names too."""
    for name in ("invoices", "broken", "needy", "package", "package.letters"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a current folder with modules, which is not on the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    (tmp_path / "invoices.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("raise RuntimeError('no licence for sk-abcdefgh')")
    (tmp_path / "needy.py").write_text("import missing_dependency")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "letters.py").write_text(
        "async def write(context):\n    return 'letter'\n"
    )
    forget_modules()
    yield tmp_path
    forget_modules()


def test_handlers_are_found_in_the_current_folder(folder: Path) -> None:
    """A module, a package's module, a bound method and a partial serve as handlers.

    A type without a handler has none.
    """
    types = {
        "invoice": TypeConfig(handler="invoices:good"),
        "letter": TypeConfig(handler="package.letters:write"),
        "method": TypeConfig(handler="invoices:runner"),
        "partial": TypeConfig(handler="invoices:partial"),
        "document": TypeConfig(max_attempts=3),
    }

    handlers = load(types)

    assert [handlers[name].args[0].__name__ for name in ("invoice", "letter", "method")] == [
        "good",
        "write",
        "run",
    ]
    assert set(handlers) == {"invoice", "letter", "method", "partial"}


def test_a_plain_function_runs_in_a_thread(folder: Path) -> None:
    """An object whose call is async is awaited as an async function is."""
    types = {
        "plain": TypeConfig(handler="invoices:plain"),
        "native": TypeConfig(handler="builtins:repr"),
        "caller": TypeConfig(handler="invoices:caller"),
    }

    runs = {name: handler.func.__name__ for name, handler in load(types).items()}

    assert runs == {"plain": "run_blocking", "native": "run_blocking", "caller": "run_async"}


def test_the_module_of_a_process_is_not_imported_here(folder: Path) -> None:
    """What its import does, it does in the process."""
    types = {"fragile": TypeConfig(handler="broken:run", run="process")}

    assert load(types) == {"fragile": ("fragile", "broken:run")}


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        ("invoice:good", "there is no module invoice in "),
        ("package.envelopes:write", "there is no module package.envelopes in "),
        ("invoices.deeper:good", "invoices.deeper"),
        (
            "invoices:goood",
            "module invoices has no function goood; define it there, or name another one",
        ),
        (
            "invoices:value",
            (
                "invoices:value is not a function that returns its result; "
                "define it as: def value(context), or async def value(context)"
            ),
        ),
        ("invoices:Runner", "is not a function that returns its result"),
        ("invoices:stream", "is not a function that returns its result"),
        ("invoices:lines", "is not a function that returns its result"),
        (
            "invoices:none",
            "must take the context and nothing else; define it as: def none(context), or async",
        ),
        ("invoices:two", "must take the context and nothing else"),
        ("broken:run", "module broken cannot be imported: RuntimeError: no licence for ***"),
        (
            "needy:run",
            "module needy needs a module that is missing: missing_dependency; install it",
        ),
    ],
)
def test_a_handler_that_cannot_be_used_is_refused(folder: Path, handler: str, words: str) -> None:
    """The error names the setting, the fault and the remedy, and shows no key."""
    with pytest.raises(ConfigError) as refused:
        load({"invoice": TypeConfig(handler=handler)})

    assert str(refused.value).startswith("types.invoice.handler: ")
    assert words in str(refused.value)
    assert "abcdefgh" not in str(refused.value)


def test_all_faults_are_reported_together(folder: Path) -> None:
    """Two wrong handlers are two lines."""
    with pytest.raises(ConfigError) as refused:
        load(
            {
                "a": TypeConfig(handler="nowhere:x"),
                "good": TypeConfig(handler="invoices:good"),
                "b": TypeConfig(handler="invoices:x"),
            }
        )

    assert [line.split(":")[0] for line in str(refused.value).splitlines()] == [
        "types.a.handler",
        "types.b.handler",
    ]


def test_without_handlers_the_path_is_left_alone(folder: Path) -> None:
    """Without handlers, nothing is imported and no folder is added to the path."""
    path = list(sys.path)

    assert load({"document": TypeConfig()}) == {}
    assert sys.path == path


@pytest.mark.parametrize("module", ["handlers", "handlers.builtin.map_reduce"])
def test_the_built_in_handler_that_a_type_names_gets_the_attempt_itself(module: str) -> None:
    """It needs more of its attempt than contexts show, and a process has no more."""
    path = f"docllm.agent.{module}:map_reduce"

    assert load({"book": TypeConfig(handler=path)}) == {"book": map_reduce}
    with pytest.raises(ConfigError, match="runs in the agent; leave out: run"):
        load({"book": TypeConfig(handler=path, run="process")})
