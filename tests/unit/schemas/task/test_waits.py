"""The table of waits, in code and on its page."""

import re
from pathlib import Path

import pytest

from docllm.schemas.task.waits import (
    LEDGER,
    LEDGER_WAITS,
    NO_ROUTE,
    OTHER_WAITS,
    WaitReason,
    wait_text,
)

PAGE = Path(__file__).resolve().parents[4] / "docs/explanation/waiting.md"


def test_the_page_has_the_table_of_the_code() -> None:
    """Each way to wait has its row, in the same words."""
    rows = re.findall(
        r"^\| (.*) \| (.*) \| (.*) \| (.*) \| (.*) \|$", PAGE.read_text(), re.MULTILINE
    )
    told = [tuple(map(str.strip, row)) for row in rows[1:]]

    assert told == [
        (
            wait.what,
            wait.place,
            wait.ended_by,
            wait.status.format(key="NAME"),
            f"[`{wait.code}`](../how-to/runbook.md#{wait.code})" if wait.code else "",
        )
        for wait in (*LEDGER_WAITS.values(), *OTHER_WAITS)
    ]


def test_each_reason_of_the_ledger_has_its_row() -> None:
    """And no other way to wait is kept there."""
    assert set(LEDGER_WAITS) == set(WaitReason)
    assert {wait.place for wait in LEDGER_WAITS.values()} == {LEDGER}
    assert LEDGER not in {wait.place for wait in OTHER_WAITS}


@pytest.mark.parametrize(
    ("reason", "key", "text"),
    [
        ("ROUTE", "fast", "for route fast"),
        ("ROUTE", NO_ROUTE, "for a route that they may take"),
        ("TIME", "", "for a time"),
        ("HOURS", "scan", "for the hours of type scan"),
        ("BUDGET", "x", "for BUDGET"),
    ],
)
def test_a_person_reads_what_a_task_waits_for(reason: str, key: str, text: str) -> None:
    """A newer version may know more reasons."""
    assert wait_text(reason, key) == text
