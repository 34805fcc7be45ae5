"""Tests are found by name: those of a source file, and those of a promise."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.invariants import promises

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "tests" / "unit"
README = (ROOT / "tests" / "README.md").read_text()
PACKAGES = ("schemas", "producer", "agent")
TESTED_BY = re.compile(r"^Tested by (tests/\S+\.py(?: and\s+tests/\S+\.py)*)\.$", re.MULTILINE)


def modules() -> Iterator[Path]:
    """Yield the source files that define a function; plain values and migrations are data."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name not in {"__init__.py", "__main__.py"} and "migrations" not in path.parts:
                functions = (ast.FunctionDef, ast.AsyncFunctionDef)
                if any(
                    isinstance(node, functions) for node in ast.walk(ast.parse(path.read_text()))
                ):
                    yield path.relative_to(ROOT)


def unit_tests(module: Path) -> list[Path]:
    """Return the unit tests of a module: `test_<name>.py` or `test_<name>_<aspect>.py`."""
    folder = UNIT / module.parent
    return [*folder.glob(f"test_{module.stem}.py"), *folder.glob(f"test_{module.stem}_*.py")]


def named_tests(module: Path) -> list[Path]:
    """Return the tests that a module's docstring names."""
    docstring = ast.get_docstring(ast.parse((ROOT / module).read_text())) or ""
    match = TESTED_BY.search(docstring)
    return [ROOT / name for name in re.findall(r"tests/\S+\.py", match[1])] if match else []


def test_a_module_has_tests_of_its_name_or_names_them() -> None:
    """A reader finds the tests of a file without a search."""
    untested = [
        f"write {Path('tests/unit', module.parent, f'test_{module.name}')}, "
        f"or end the docstring of {module} with: Tested by tests/….py."
        for module in modules()
        if not unit_tests(module) and not named_tests(module)
    ]
    assert untested == []


def test_tests_that_a_module_names_exist() -> None:
    """A renamed test file is renamed in the docstrings too."""
    missing = [
        (str(module), str(test.relative_to(ROOT)))
        for module in modules()
        for test in named_tests(module)
        if not test.is_file()
    ]
    assert missing == []


def test_a_unit_test_stands_where_its_module_stands() -> None:
    """A test file that is named after no module stands at the top and tests several."""
    places = {
        Path("tests/unit", module.parent, f"test_{module.stem}")
        for package in (*PACKAGES, "tests")
        for module in (
            path.relative_to(ROOT)
            for path in (ROOT / package).rglob("*.py")
            if UNIT not in path.parents
        )
    } | {Path("tests/unit/schemas/ledger/test_migrations")}
    strays = [
        path
        for path in (path.relative_to(ROOT) for path in UNIT.rglob("test_*.py"))
        if path.parent != Path("tests/unit")
        and not any(
            path.parent == place.parent
            and (path.stem == place.name or path.stem.startswith(f"{place.name}_"))
            for place in places
        )
    ]
    assert strays == []


def test_the_tables_name_tests_that_exist() -> None:
    """A renamed test file is renamed in the tables of subjects and of promises too."""
    named = re.findall(r"`(\w+/[\w/]+\.py)`", README)

    assert len(named) > len(titles())
    assert [name for name in named if not (ROOT / "tests" / name).is_file()] == []


def test_each_subject_names_small_tests() -> None:
    """A reader who looks for a subject finds it in the order of the alphabet."""
    table = README.partition("## Where each subject is tested")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if ".py`" in line]
    subjects = [subject.casefold() for subject, *_ in rows]

    assert subjects == sorted(set(subjects))
    assert [row for row in rows if len(row) != 3 or not row[1]] == []


def test_each_promise_names_its_tests() -> None:
    """Each has small tests and whole programs, and a promise of `tests/invariants` judges it."""
    table = README.partition("## Where each promise is tested")[2]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if ".py`" in line]
    judges = {name.partition("_")[0].upper() for name in vars(promises) if re.match(r"p\d_", name)}

    assert [row[0] for row in rows] == titles()
    assert all(len(row) == 4 for row in rows)
    assert {judge for row in rows for judge in row[3].split()} == judges


def titles() -> list[str]:
    """Return the names of the promises."""
    section = (
        (ROOT / "docs/explanation/promises.md").read_text().partition("## What it promises")[2]
    )
    return re.findall(r"^\d\. \*\*(.+)\.\*\*", section.partition("\n## ")[0], re.MULTILINE)


def test_tests_that_the_documents_name_exist() -> None:
    """A document that names a test sends its reader to a file."""
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    missing = [
        (document.name, name)
        for document in documents
        for name in re.findall(r"tests/[\w/]+\.py", document.read_text())
        if not (ROOT / name).is_file()
    ]
    assert documents
    assert missing == []
