"""Fill in the parts of docs/reference that come from the code: `python -m tools.reference`.

A page marks such a part by comments, `<!-- begin NAME ... -->` and `<!-- end -->`. A block of text
that begins with a command and `--help` is filled with what the command prints. With `--check`
nothing is written, and the exit code is 1 if a page is stale.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import Table
from sqlalchemy.dialects import mysql

from docllm.schemas.ledger.tables import metadata
from docllm.schemas.refusals.error_body import read_body
from docllm.schemas.refusals.signals import TABLE
from docllm.schemas.settings.catalog import NAMED_SETTINGS, SETTINGS
from docllm.schemas.settings.kinds import Setting
from docllm.schemas.task.states import Status

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
PAGES = ("commands.md", "failures.md", "settings.md", "tables.md")
REFUSALS = FOLDER.parents[1] / "tests" / "unit" / "agent" / "judge" / "wordings.jsonl"
EXAMPLES, EXAMPLE_CHARS = 4, 80
NAMELESS = "a gateway"  # the provider of what any server may answer
PART = re.compile(r"(<!-- begin ([\w ]+?) \([^)\n]*\) -->\n).*?(<!-- end -->)", re.DOTALL)
HELP = re.compile(r"(^```text\n\$ (docllm [^\n]*--help)\n).*?(^```\n)", re.MULTILINE | re.DOTALL)
COLUMNS = 80
PLACEHOLDERS = dict.fromkeys(NAMED_SETTINGS, "NAME") | {"prices": '"MODEL"'}


def main(argv: list[str]) -> int:
    """Write the pages that are stale, or only name them; return the exit code."""
    only_check = "--check" in argv
    stale = [page for page in PAGES if text(page) != filled(text(page))]
    for page in stale:
        print(f"docs/reference/{page}", "is stale" if only_check else "written")  # noqa: T201 - for a person
        if not only_check:
            (FOLDER / page).write_text(filled(text(page)), "utf-8")
    return 1 if stale and only_check else 0


def text(page: str) -> str:
    """Return a page as it is."""
    return (FOLDER / page).read_text("utf-8")


def filled(page: str) -> str:
    """Return the text of a page with its parts as the code gives them now."""
    helps = HELP.sub(lambda block: f"{block[1]}{printed_help(block[2])}{block[3]}", page)
    return PART.sub(lambda part: f"{part[1]}{PARTS[part[2]]()}{part[3]}", helps)


def printed_help(command: str) -> str:
    """Return what a command prints for `--help`."""
    environ = os.environ | {"COLUMNS": str(COLUMNS + 2), "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=FOLDER.parents[1],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def settings() -> str:
    """Return a table for each section of settings that have one name."""
    return _sections(
        (name.partition(".")[0] if "." in name else "At the top", name, setting)
        for name, setting in SETTINGS.items()
    )


def named_settings() -> str:
    """Return a table for each kind of section that a person names."""
    return _sections(
        (f"{section}.{PLACEHOLDERS[section]}", f"{section}.{PLACEHOLDERS[section]}.{key}", setting)
        for section, settings in NAMED_SETTINGS.items()
        for key, setting in settings.items()
    )


def _sections(settings: Iterable[tuple[str, str, Setting]]) -> str:
    rows: dict[str, list[tuple[str, str]]] = {}
    for section, name, setting in settings:
        facts = (("default", setting.default), ("variable", setting.variable))
        known = ", ".join(f"{fact} {code(value)}" for fact, value in facts if value)
        meaning = f"{setting.meaning}<br>{known}" if known else setting.meaning
        rows.setdefault(section, []).append((code(name), meaning))
    return "".join(
        f"\n### {section}\n\n{table(('key', 'meaning'), rows[section])}" for section in rows
    )


def refusals() -> str:
    """Return a table of classes with refusals from the corpus of the tests."""
    corpus = [orjson.loads(line) for line in REFUSALS.read_bytes().splitlines()]
    names = dict.fromkeys(row.error_class for row in TABLE)
    return table(
        ("class", "refusals tested", "such as"),
        (
            (code(name), str(len(rows)), "<br>".join(_examples(rows)))
            for name in names
            if (rows := [row for row in corpus if row[3] == name])
        ),
    )


def _examples(rows: list[list[Any]]) -> list[str]:
    """Return refusals of several providers, each with its status, spread over the corpus."""
    said: dict[str, str] = {}
    for provider, status, body, _ in rows:
        raw = body.encode() if isinstance(body, str) else orjson.dumps(body)
        words = ": ".join(read_body(raw).texts)
        is_short = words and len(words) <= EXAMPLE_CHARS and not set(words) & set("|`\n")
        if is_short and provider != NAMELESS:
            said.setdefault(provider, f"{provider}, {status}: {words}")
    shown = list(said.values())
    return shown[:: max(1, len(shown) // EXAMPLES)][:EXAMPLES]


def states() -> str:
    """Return the table of a task's states."""
    return table(("number", "state"), ((str(int(state)), state.name.lower()) for state in Status))


def ledger_tables() -> str:
    """Return a section for each table of the ledger."""
    return "\n".join(map(_ledger_table, metadata.tables.values()))


def _ledger_table(each: Table[Any]) -> str:
    key = [column.name for column in each.primary_key]
    rows = (
        (code(column.name), str(column.type.compile(mysql.dialect())).lower(), column.doc or "")
        for column in each.columns
    )
    meaning = f"{each.info['doc'][0].upper()}{each.info['doc'][1:]}."
    keys = f"Primary key: {', '.join(map(code, key))}."
    return f"### {each.name}\n\n{meaning} {keys}\n\n{table(('column', 'type', 'meaning'), rows)}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    lines = [_row(head), re.sub(r"[^|]+", "---", _row(head)), *map(_row, rows)]
    return "".join(f"{line}\n" for line in lines)


def code(word: str | None) -> str:
    """Return a word as code, or nothing for none."""
    return f"`{word}`" if word else ""


def _row(cells: Iterable[str]) -> str:
    return re.sub(r"\|\s+(?=\|)", "| ", f"| {' | '.join(cells)} |")


PARTS: dict[str, Callable[[], str]] = {
    "settings": settings,
    "named settings": named_settings,
    "refusals": refusals,
    "states": states,
    "tables": ledger_tables,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
