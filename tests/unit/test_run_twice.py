"""The examples of the page "Your handler may run twice" do once what must happen once."""

import asyncio
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from docllm import BlockingContext
from docllm.agent.handlers.calls.results import Answer
from docllm.agent.handlers.held_lock import HeldLock
from docllm.schemas.task.line.parsing import TaskLine
from docllm.testing import FakeContext
from tests.support.doubles import double_of

PAGE = Path(__file__).parents[2] / "docs/how-to/run-twice.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def run_with(fence: int, total: str) -> BlockingContext:
    """Return the context of a run that holds the lock with this fence."""

    @contextmanager
    def lock(_: str) -> Iterator[Any]:
        yield double_of(HeldLock, fence=fence, check=lambda: None)

    context: BlockingContext = double_of(
        BlockingContext,
        task=double_of(TaskLine, key="invoice-7"),
        model="gpt-4o-mini",
        document=lambda: "Total: 7.50",
        complete=lambda _: double_of(Answer, text=total),
        lock=lock,
    )
    return context


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[BlockingContext], Any]:
    """Return the page's handler, beside a database with its table."""
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect("invoices.db") as database:
        database.execute("CREATE TABLE invoice (task PRIMARY KEY, total, fence)")
    module: dict[str, Any] = {}
    exec(BLOCKS[0], module)  # noqa: S102 - the page is ours
    handler: Callable[[BlockingContext], Any] = module["book"]
    return handler


def booked() -> list[tuple[str, str, int]]:
    """Return the rows of the database."""
    with sqlite3.connect("invoices.db") as database:
        return database.execute("SELECT task, total, fence FROM invoice").fetchall()


def test_a_second_run_replaces_the_first(book: Callable[[BlockingContext], Any]) -> None:
    """Two runs one after the other leave one row."""
    book(run_with(fence=1, total="7.50"))
    book(run_with(fence=2, total="7.51"))

    assert booked() == [("invoice-7", "7.51", 2)]


def test_a_run_that_comes_back_late_changes_nothing(book: Callable[[BlockingContext], Any]) -> None:
    """A run with a lower fence stood still while another one took over."""
    book(run_with(fence=2, total="7.51"))
    book(run_with(fence=1, total="7.50"))

    assert booked() == [("invoice-7", "7.51", 2)]


@pytest.mark.parametrize(
    ("losses", "was_paid", "payments"), [(0, True, 1), (1, True, 0), (1, False, 1)]
)
def test_a_run_after_a_loss_looks_first(losses: int, *, was_paid: bool, payments: int) -> None:
    """A payment that a lost run has made is found and not made again."""
    made: list[str] = []

    async def find_payment(invoice: str) -> str | None:
        return f"found {invoice}" if was_paid else None

    async def make_payment(invoice: str) -> str:
        made.append(invoice)
        return f"made {invoice}"

    module: dict[str, Any] = {"find_payment": find_payment, "make_payment": make_payment}
    exec(BLOCKS[1], module)  # noqa: S102 - the page is ours
    line = {"id": "a", "prompt": "pay", "metadata": {"invoice": "7"}}

    result = asyncio.run(FakeContext(line, losses=losses).run(module["pay"]))

    assert (result, len(made)) == ("made 7" if payments else "found 7", payments)
