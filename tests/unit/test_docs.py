"""The documents agree with the program.

Every help text, command, name, code, header and link that they show exists as shown.
"""

import re
import shlex
import tomllib
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from docllm.agent.cli import parser as agent
from docllm.agent.cli.docllm_parser import docllm_parser
from docllm.agent.handlers import registry
from docllm.agent.judge.classes import CLASSES, Action
from docllm.producer import __main__ as producer
from docllm.producer.cli.parser import parser
from docllm.producer.cli.wait import TIMED_OUT
from docllm.schemas import errors
from docllm.schemas.clients.kafka import (
    CONSUMER_PROMISES,
    EXECUTING,
    PRODUCER_PROMISES,
    SET_BY_DOCLLM,
)
from docllm.schemas.runtime.interpreter_watchdog import FROZEN
from docllm.schemas.runtime.starting import INTERRUPTED
from docllm.schemas.settings.catalog import SETTINGS
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.kinds import FIXED_CLIENT_SETTINGS
from docllm.schemas.settings.sources import load_config
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.record.topics import Topics
from docllm.schemas.task.states import TRANSITIONS
from tests.faults import __main__ as faults
from tests.invariants import promises
from tests.simulation import __main__ as simulation

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text("utf-8") for page in PAGES}
COMMANDS = "docs/reference/commands.md"
CONFIGURATION = "docs/reference/configuration.md"
FAILURES = "docs/reference/failures.md"
KAFKA = "docs/how-to/kafka.md"
EXIT_CODES = "docs/reference/exit-codes.md"
HOW_IT_WORKS = "docs/explanation/how-it-works.md"
ARCHITECTURE = "docs/explanation/architecture.md"
PROOF = "docs/explanation/proof.md"
PROMISES = "docs/explanation/promises.md"
OF_TESTS = (ROOT / "tests/README.md").read_text("utf-8")
EVERYTHING = "\n".join(TEXTS.values())
HELP_LINES, HELP_COLUMNS = 44, 80
SUBPROGRAMS = {"rehearsal-llm": agent.rehearsal_parser, "resume": agent.resume_parser}
COMMENT_OR_SHELL = re.compile(r"\s+#.*|\s+[<>|].*|\s*;.*|\s*&&.*")


def fenced(text: str, language: str) -> list[str]:
    """Return the blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def helps() -> list[tuple[str, str]]:
    """Return each command with the help that the page of commands shows for it."""
    blocks = [block.partition("\n") for block in fenced(TEXTS[COMMANDS], "text")]
    return [
        (first.removeprefix("$ "), rest) for first, _, rest in blocks if first.endswith("--help")
    ]


def commands() -> list[str]:
    """Return every call of docllm's programs that a page tells its reader to type."""
    lines = [
        line.strip()
        for text in TEXTS.values()
        for block in fenced(text, "sh")
        for line in block.splitlines()
    ]
    starts = ("docllm ", "python -m ")
    return sorted({COMMENT_OR_SHELL.sub("", line) for line in lines if line.startswith(starts)})


def rows(page: str, first_cell: str) -> list[list[str]]:
    """Return the cells of the table whose header row begins with this cell."""
    table = re.search(
        rf"^\| {re.escape(first_cell)} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", TEXTS[page], re.MULTILINE
    )
    assert table is not None
    return [
        [cell.strip() for cell in line.strip("|\n").split("|")] for line in table[1].splitlines()
    ]


def main_of(words: list[str]) -> int:
    """Run a program's command line in this process."""
    match words[1:]:
        case ["agent", *rest]:
            return agent.main(rest)
        case ["--help"]:
            docllm_parser().parse_args(words[1:])
    return producer.main(words[1:])


PROOFS = {
    "tests.faults": lambda argv: faults._parser().parse_args(argv),
    "tests.simulation": simulation._options,
}


@pytest.mark.parametrize(("line", "shown"), helps())
def test_help_is_shown_as_it_is(
    line: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page of commands shows what `--help` prints at 80 columns, and each fits one screen."""
    monkeypatch.setenv("COLUMNS", str(HELP_COLUMNS + 2))
    with pytest.raises(SystemExit) as ended:
        main_of(shlex.split(line))

    printed = capsys.readouterr().out
    assert ended.value.code == 0
    assert shown == printed
    assert len(printed.splitlines()) <= HELP_LINES
    assert max(map(len, printed.splitlines())) <= HELP_COLUMNS


def subcommands(line: str, parser: ArgumentParser) -> list[str]:
    """Return every command below this one, including those of subcommands."""
    below = parser._subparsers._group_actions[0].choices if parser._subparsers is not None else {}
    return [
        each
        for name, command in dict(below or {}).items()
        for each in (f"{line} {name}", *subcommands(f"{line} {name}", command))
    ]


def test_every_command_is_shown() -> None:
    """The page of commands leaves no command out."""
    names = [f"{line} --help" for line in subcommands("docllm", parser())]
    wanted = {
        "docllm --help",
        *names,
        "docllm agent --help",
        "docllm agent rehearsal-llm --help",
        "docllm agent resume --help",
    }
    assert {line for line, _ in helps()} == wanted


@pytest.mark.parametrize("line", commands())
def test_commands_can_be_typed(line: str) -> None:
    """Each command line in a page is one that the program's parser takes."""
    match shlex.split(line):
        case ["python", "-m", program, *rest] if program in PROOFS:
            PROOFS[program](rest)
        case ["docllm", "agent", subprogram, *rest] if subprogram in SUBPROGRAMS:
            SUBPROGRAMS[subprogram]().parse_args(rest)
        case ["docllm", *rest] if rest != ["--version"]:
            docllm_parser().parse_args(rest)


def test_diagrams_are_the_table_of_transitions() -> None:
    """The diagrams together have exactly the transitions of the code."""
    diagrams = "".join(fenced(TEXTS[HOW_IT_WORKS], "mermaid"))
    arrows = re.findall(r"^\s+(\w+) --> (\w+): (.+)$", diagrams, re.MULTILINE)
    drawn = {
        (source, target, name) for source, target, names in arrows for name in names.split(", ")
    }
    assert drawn == {
        (source.name.lower(), transition.target.name.lower(), transition.name)
        for transition in TRANSITIONS.values()
        for source in transition.sources
    }


@pytest.mark.parametrize("block", fenced(TEXTS[CONFIGURATION], "toml"))
def test_example_files_are_taken(block: str, tmp_path: Path) -> None:
    """Each file, or part of one, that the configuration page shows can be used."""
    (tmp_path / "docllm.toml").write_text(block)

    assert load_config(flags={}, environ={}, cwd=tmp_path) != Config(
        data_dir=tmp_path / "docllm-data"
    )


def test_the_example_handler_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example handler of the configuration page is one that an agent accepts, by its name."""
    (block,) = fenced(TEXTS[CONFIGURATION], "python")
    (tmp_path / "invoices.py").write_text(block)
    (tmp_path / "docllm.toml").write_text(
        next(toml for toml in fenced(TEXTS[CONFIGURATION], "toml") if "handler" in toml)
    )
    monkeypatch.syspath_prepend(tmp_path)

    types = load_config(flags={}, environ={}, cwd=tmp_path).types

    def never(*_: object) -> Any:
        pytest.fail("the example runs in the agent")

    handlers = registry.load(types, runner=lambda _function: never, in_process=never)

    assert list(handlers) == ["invoice"]


def test_variables_exist() -> None:
    """Every variable that a page names is read by the program or set by the tests."""
    known = {setting.variable for setting in SETTINGS.values()} | {"DOCLLM_CONFIG"}
    documented = set(re.findall(r"DOCLLM_[A-Z_]+", EVERYTHING))
    for_tests = {name for name in documented if name.startswith("DOCLLM_TEST_")}
    sources = "".join(
        path.read_text("utf-8")
        for folder in ("tests", "schemas")
        for path in (ROOT / folder).rglob("*.py")
    )
    assert documented - for_tests <= known
    assert [name for name in for_tests if f'"{name}"' not in sources] == []


def test_refused_client_settings_are_documented() -> None:
    """The configuration page names every librdkafka setting that docllm refuses."""
    refused = {
        *FIXED_CLIENT_SETTINGS,
        *EXECUTING,
        *SET_BY_DOCLLM,
        *CONSUMER_PROMISES,
        *PRODUCER_PROMISES,
    } - {"delivery.report.only.error"}
    assert [name for name in sorted(refused) if f"`{name}`" not in TEXTS[CONFIGURATION]] == []


def test_exit_codes_are_those_of_the_program() -> None:
    """The table has the codes of each error, of success, time-out and the forced ends; no other."""
    known = {
        kind.exit_code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.DocllmError)
    }
    assert {int(code) for code, _ in rows(EXIT_CODES, "code")} == {
        *(0, TIMED_OUT, FROZEN, INTERRUPTED),
        *known,
    }


def test_failure_classes_are_those_of_the_program() -> None:
    """The table of failures says what the judge does with each class."""
    actions = {Action.SNOOZE: "waits", Action.RETRY: "tried again, counted", Action.GIVE_UP: "dead"}
    documented = [(name.strip("`"), becomes) for name, becomes, _ in rows(FAILURES, "class")]
    assert documented == [(name, actions[rule.action]) for name, rule in CLASSES.items()]


def test_failures_without_a_call_are_documented() -> None:
    """The page also lists the other classes, which are in no table of the judge."""
    documented = [name.strip("`") for name, *_ in rows(FAILURES, "not of a call")]
    assert documented == [name for name in ErrorClass if name not in CLASSES]


def test_topics_are_those_of_the_program() -> None:
    """The table of topics names the whole family of a group."""
    assert "nothing yet" not in " ".join(cells[1] for cells in rows(KAFKA, "topic"))
    named = " ".join(cells[0] for cells in rows(KAFKA, "topic"))
    for destination in Topics("g").destinations:
        assert f".{destination}`" in named


def test_headers_exist() -> None:
    """Every header of docllm that a page names is written or read by the program."""
    sources = "".join(
        path.read_text("utf-8")
        for folder in ("schemas", "producer", "agent")
        for path in (ROOT / folder).rglob("*.py")
    )
    headers = set(re.findall(r"`(docllm-[a-z-]+|kafka_dlt-[a-z-]+)`", EVERYTHING)) - {"docllm-data"}
    assert [header for header in sorted(headers) if f'"{header}"' not in sources] == []


def test_make_targets_exist() -> None:
    """Every `make` target that a page names is in the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", EVERYTHING, re.MULTILINE)) <= targets


def anchor(title: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", TEXTS)
def test_links_lead_somewhere(page: str) -> None:
    """Every link to a file of the project leads to one, and its anchor to a heading there."""
    for target in re.findall(r"\]\(([^)\s]+)\)", TEXTS[page]):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), target
        titles = re.findall(r"^#+ (.*)$", file.read_text("utf-8"), re.MULTILINE) if fragment else []
        assert not fragment or fragment in map(anchor, titles), target


@pytest.mark.parametrize("page", TEXTS)
def test_rows_of_a_table_have_as_many_cells_as_its_head(page: str) -> None:
    """A table whose head has other cells than its ruler is shown as text with bars."""
    prose = re.sub(r"^```.*?^```", "", TEXTS[page], flags=re.MULTILINE | re.DOTALL)
    plain = re.sub(r"`[^`\n]*`|\\\|", "", prose)
    for table in re.findall(r"(?:^\|.*\|\n)+", plain, re.MULTILINE):
        first, *others = table.splitlines()
        assert [row for row in others if row.count("|") != first.count("|")] == [], first


@pytest.mark.parametrize("page", [ARCHITECTURE])
def test_named_files_exist(page: str) -> None:
    """Every file of the project that the architecture names is there."""
    named = re.findall(r"`([a-z0-9_/]+\.(?:py|lua|md|yml|toml|json))`", TEXTS[page])
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("package", ["agent", "producer"])
def test_layers_are_those_of_the_import_contract(package: str) -> None:
    """The architecture's picture of a package has the layers that `lint-imports` checks."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = [
        contract["layers"]
        for contract in contracts
        if contract.get("containers") == [f"docllm.{package}"]
    ]
    pictures = [
        block
        for block in fenced(TEXTS[ARCHITECTURE], "")
        if block.startswith(("__main__", "docllm"))
    ]
    drawn = [
        [re.split(r"\s{2,}", line)[0] for line in picture.splitlines()] for picture in pictures
    ]
    assert layers in drawn


def test_the_site_has_every_page() -> None:
    """The site's navigation names each page of `docs/` once."""
    nav = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    listed = [
        page
        for entry in nav
        for page in ([entry] if isinstance(entry, str) else next(iter(entry.values())))
    ]
    assert sorted(f"docs/{page}" for page in listed) == sorted(
        page for page in TEXTS if "/" in page
    )


def test_bugs_of_the_proof_have_their_tests() -> None:
    """Each test that the proof's table of bugs names exists."""
    named = set(re.findall(r"\| `(test_\w+)` \|", TEXTS[PROOF]))
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }

    assert named
    assert named - defined == set()


def test_named_tests_exist() -> None:
    """A page that names a test sends its reader to a file."""
    documents = {page: page.read_text("utf-8") for page in [*PAGES, *ROOT.glob("*.md")]}
    named = {name for text in documents.values() for name in re.findall(r"tests/[\w/]+\.py", text)}
    in_tables = {f"tests/{name}" for name in re.findall(r"`(\w+/[\w/]+\.py)`", OF_TESTS)}

    assert named
    assert in_tables
    assert [name for name in sorted(named | in_tables) if not (ROOT / name).is_file()] == []


def test_each_promise_names_its_tests() -> None:
    """Each promise has small tests and whole programs, and `tests/invariants` judges it."""
    table = OF_TESTS.partition("## Where each promise is tested")[2]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines() if ".py`" in line]
    section = TEXTS[PROMISES].partition("## What it promises")[2].partition("\n## ")[0]
    titles = re.findall(r"^\d\. \*\*(.+)\.\*\*", section, re.MULTILINE)
    judges = {name.partition("_")[0].upper() for name in vars(promises) if re.match(r"p\d_", name)}

    assert [row[0] for row in cells] == titles
    assert all(len(row) == 4 for row in cells)
    assert {judge for row in cells for judge in row[3].split()} == judges


@pytest.mark.parametrize("page", TEXTS)
def test_no_page_installs_from_an_index(page: str) -> None:
    """There is no docllm on a package index, so a page installs it from the clone alone."""
    assert re.findall(r"\b(?:install|add) +['\"]?docllm\b(?!/)", TEXTS[page]) == []
