"""A progress bar on a terminal, and log lines that never tear it.

While a bar is shown, what is written to `sys.stderr` appears above it.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from docllm.producer.text.printable import shown

if TYPE_CHECKING:  # no bar is shown to most programs
    from rich.progress import Progress, TaskID


class Bar:
    """A progress bar on a terminal; nothing elsewhere."""

    def __init__(
        self,
        progress: "Progress | None" = None,
        *,
        task: "TaskID | None" = None,
        ticks: bool = True,
    ) -> None:
        self._progress = progress
        self._task = task
        self._ticks = ticks

    @property
    def shown(self) -> bool:
        """Whether anybody sees it."""
        return self._progress is not None

    def show(self, done: float, total: float | None = None, facts: str | None = None) -> None:
        """Show the progress, with what a person should know beside it."""
        if self._progress is None or self._task is None:
            return
        if facts is None:
            facts = f"{done:,.0f}" if total is None else f"{done:,.0f} of {total:,.0f}"
        self._progress.update(self._task, completed=done, total=total, facts=shown(facts))
        if not self._ticks:
            self._progress.refresh()


@contextmanager
def bar(title: str, *, ticks: bool = True, visible: bool = True) -> Iterator[Bar]:
    """Show a progress bar on stderr while the block runs, if stderr is a terminal.

    It moves by itself, on a thread; without `ticks` there is no thread, and it moves only when
    `show` is called.
    """
    if not (visible and sys.stderr.isatty()):
        yield Bar()
        return
    from rich.console import Console  # noqa: PLC0415 - see above
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

    # A long log line must not be broken, or nobody can search for it or copy it.
    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)
    if console.is_dumb_terminal:
        yield Bar()
        return
    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[facts]}", markup=False),
        console=console,
        auto_refresh=ticks,
        transient=True,  # the bar is removed, because the summary follows
        # Results that go to a file or pipe must get there.
        redirect_stdout=sys.stdout.isatty(),
        expand=True,
    )
    with progress:
        task = progress.add_task(shown(title), total=None, facts="")
        yield Bar(progress, task=task, ticks=ticks)
