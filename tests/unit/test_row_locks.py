"""The table of locks in the architecture page is that of the source."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.syntax import Source, sources

ROOT = Path(__file__).parents[2]
LOCKING_CALLS = {"with_for_update", "flock", "lockf"}
LOCKING_SQL = re.compile(
    r"\bFOR (?:UPDATE|SHARE)\b|\bLOCK (?:IN SHARE|TABLES?)\b|\bSKIP LOCKED\b|\bGET_LOCK\("
    r"|\bBEGIN (?:IMMEDIATE|EXCLUSIVE)\b"
)


def locks_in(source: Source) -> int:
    """Return how many explicit locks a source file takes; docstrings are no code."""
    prose = {id(node.value) for node in source.nodes if isinstance(node, ast.Expr)}
    calls = sum(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LOCKING_CALLS
        for node in source.nodes
    )
    texts = sum(
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in prose
        and LOCKING_SQL.search(node.value) is not None
        for node in source.nodes
    )
    return calls + texts


def locks_of_the_page() -> Counter[str]:
    """Return the files of the page's table, each with the number of its locks."""
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8")
    section = page.partition("\n## Row locks\n")[2].partition("\n## ")[0]
    table = "\n".join(line for line in section.splitlines() if line.startswith("|"))
    locks: Counter[str] = Counter()
    for path, times in re.findall(r"`([a-z_/]+\.py)` ?(?:\((\d+)\))?", table):
        locks[path] += int(times or 1)
    return locks


def test_the_table_has_every_explicit_lock() -> None:
    """A lock that is added must get its place in the order of locks."""
    locks = {path: count for path, source in sources().items() if (count := locks_in(source))}

    assert locks == dict(locks_of_the_page())


@pytest.mark.parametrize(
    "source",
    [
        "query.with_for_update(skip_locked=True)",
        "fcntl.flock(file, fcntl.LOCK_EX)",
        "connection.execute(text('SELECT id FROM task FOR UPDATE'))",
        "connection.execute('SELECT id FROM task LOCK IN SHARE MODE')",
        "connection.execute(f'SELECT GET_LOCK({name}, 1)')",
        "connection.execute('BEGIN IMMEDIATE')",
    ],
)
def test_a_lock_is_seen(source: str) -> None:
    """Each kind of explicit lock counts, in calls and in SQL."""
    assert locks_in(Source.of(source)) == 1


def test_prose_takes_no_lock() -> None:
    """A docstring may speak of locks."""
    assert locks_in(Source.of('"""Rows are read FOR UPDATE."""\n')) == 0
