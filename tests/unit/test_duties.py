"""The table of duties in the architecture page is that of the source."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.syntax import sources

ROOT = Path(__file__).parents[2]
# The modules that give an agent its duties, and what they import for another reason.
MAKERS = ("agent/maintenance/rounds.py", "agent/wiring/duties.py")
DO_WORK = re.compile(r"docllm\.(agent\.(?!wiring\.)|producer\.(publishing|replay)\.)")
NO_DUTIES = {
    "agent/inflight/partitions.py": "duties are given it",
    "agent/membership/life_locks.py": "duties are given it",
    "agent/routes/names.py": "reads the line of a task",
}


def section() -> str:
    """Return the page's section about duties."""
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8")
    return page.partition("\n## Duties\n")[2].partition("\n## ")[0]


def names_of_duties() -> Iterator[str]:
    """Yield the name of each duty that the agent's source makes, up to its first variable part."""
    for path, source in sources().items():
        for call in source.nodes if path.startswith("agent/") else ():
            match call:
                case ast.Call(func=ast.Name(id="Duty" | "duty"), keywords=keywords):
                    yield from (_text(word.value) for word in keywords if word.arg == "name")


def _text(name: ast.expr) -> str:
    first = name.values[0] if isinstance(name, ast.JoinedStr) else name
    assert isinstance(first, ast.Constant), "a duty's name begins with a text"
    return str(first.value).strip()


def imported_by(maker: str) -> Iterator[str]:
    """Yield the files that a maker imports and that do work: the agent's, and some producer's."""
    for node in sources()[maker].body:
        if isinstance(node, ast.ImportFrom) and DO_WORK.match(f"{node.module}."):
            module = Path(*str(node.module).split(".")[1:])
            for name in node.names:
                files = (
                    module / f"{name.name}.py",
                    module.with_suffix(".py"),
                    module / "__init__.py",
                )
                yield next(file.as_posix() for file in files if (ROOT / file).exists())


def test_the_table_names_each_duty_as_the_log_does() -> None:
    """A duty that is added gets its row, under the name with which its failures are logged."""
    rows = "\n".join(line for line in section().splitlines() if line.startswith("|"))

    assert set(re.findall(r"\*([^*|]+)\*", rows)) == set(names_of_duties())


def test_the_section_names_the_modules_of_duties() -> None:
    """What the makers of duties import is in the section, or has another reason."""
    documented = set(re.findall(r"`([a-z_/]+\.py)`", section()))
    imported = {file for maker in MAKERS for file in imported_by(maker)}

    assert imported - documented == set(NO_DUTIES)
