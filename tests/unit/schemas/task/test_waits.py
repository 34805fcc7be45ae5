"""What tasks in the ledger wait for, in code and on the page of waits."""

import re
from pathlib import Path

import pytest

from docllm.schemas.task.waits import NO_ROUTE, STATUS_TEXTS, WaitReason, wait_text

PAGE = Path(__file__).resolve().parents[4] / "docs/explanation/waiting.md"


def test_the_page_has_each_reason_as_status_shows_it() -> None:
    """The rows of the ledger are those of the reasons, in their order."""
    shown = re.findall(r"^\| .* \| ledger \| .* \| (.*) \| .*\|$", PAGE.read_text(), re.MULTILINE)

    assert shown == [STATUS_TEXTS[reason].format(key="NAME") for reason in WaitReason]


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
