"""The table of deaths in the architecture page is that of the source."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from docllm.schemas.task.failures import Disposition, ErrorClass
from tests.support.syntax import Source, sources

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "architecture.md"


def rows() -> Iterator[list[str]]:
    """Yield the cells of each row: error class, disposition, what has happened, module."""
    section = PAGE.read_text("utf-8").split("### Where a task is given up", 1)[1]
    for line in section.split("\n### ", 1)[0].splitlines():
        if line.startswith("|") and line.count("|") == 5:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if cells[3].startswith("`"):
                yield cells


def deaths(source: Source) -> list[ast.Call]:
    """Return the calls of a source file that create a `Dead`."""
    return [
        node
        for node in source.nodes
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Name) and node.func.id == "Dead")
            or (isinstance(node.func, ast.Attribute) and node.func.attr == "Dead")
        )
    ]


def test_each_module_that_gives_a_task_up_stands_in_the_table() -> None:
    """No task dies in a place that a reader of the page cannot find."""
    creating = {path for path, source in sources().items() if deaths(source)}

    assert {row[3].strip("`") for row in rows()} == creating


def test_the_classes_and_dispositions_of_the_table_stand_in_their_modules() -> None:
    """A row names an error class and a disposition that its module uses."""
    for name, disposition, _, module in rows():
        source = (ROOT / module.strip("`")).read_text("utf-8")
        if name.startswith("`"):
            assert f"ErrorClass.{ErrorClass[name.strip('`')].name}" in source, module
        if re.fullmatch("`[a-z_]+`", disposition):
            member = Disposition(disposition.strip("`"))
            default = member is Disposition.PERMANENT
            assert default or f"Disposition.{member.name}" in source, module
