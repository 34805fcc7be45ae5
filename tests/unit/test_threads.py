"""The architecture's table of threads is complete."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.syntax import Source, sources

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/explanation/architecture.md"
POOL = "asyncio"  # what asyncio calls the threads of its own pool
NAMELESS = ""


def threads(source: Source) -> Iterator[str]:
    """Yield the name of each thread that a source starts, NAMELESS for one without a name."""
    for node in source.nodes:
        match node:
            case ast.Call(func=function, args=args, keywords=keywords):
                named = {word.arg: text_of(word.value) for word in keywords}
                called = ast.unparse(function)
                if called == "threading.Thread" or (
                    called == "super().__init__" and "daemon" in named
                ):
                    yield named.get("name", NAMELESS)
                elif called == "ThreadExecutor" and not isinstance(args[0], ast.Name):
                    yield text_of(args[0])
                elif called == "_thread":  # an executor that is closed with the agent
                    yield text_of(args[1])
                elif called == "asyncio.to_thread":
                    yield POOL
                elif called == "threading.Timer" and "timer.name = " not in source.text:
                    yield NAMELESS
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="timer"), attr="name")]):
                yield text_of(node.value)


def text_of(name: ast.expr) -> str:
    """Return a name that the source spells."""
    return str(name.value) if isinstance(name, ast.Constant) else NAMELESS


def test_the_table_of_threads_is_complete() -> None:
    """Who adds a thread says what may run there, and how long it may wait."""
    section = PAGE.read_text("utf-8").partition("\n## Threads\n")[2].partition("\n## ")[0]
    table = section.partition("| thread |")[2].partition("\n\n")[0]
    listed = {name for row in table.splitlines() for name in names_of(row.partition(" | ")[0])}
    started = {name for source in sources().values() for name in threads(source)}

    assert listed == started


def names_of(cell: str) -> list[str]:
    """Return the names that the first cell of a row lists."""
    return re.findall(r"`([\w -]+)`", cell)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("threading.Thread(target=run).start()", NAMELESS),
        ("threading.Timer(1, end).start()", NAMELESS),
        ("self._thread = threading.Thread(target=run, name='new')", "new"),
        ("ThreadExecutor('new', threads=2)", "new"),
        ("await asyncio.to_thread(wait)", POOL),
    ],
)
def test_each_way_to_start_a_thread_is_found(source: str, name: str) -> None:
    """A thread without a name would be missed, so it fails the table."""
    assert list(threads(Source.of(source))) == [name]
