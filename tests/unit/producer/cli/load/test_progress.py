"""A load says how far it is, and when it will be done."""

import pytest
from rich.progress import TaskID

from docllm.producer.cli.load.command import LINE_S, LoadProgress
from docllm.producer.screen.live import Bar
from tests.support.clock import HandClock


class Shown(Bar):
    """A bar that keeps what it was told."""

    def __init__(self) -> None:
        super().__init__(None, task=TaskID(0))
        self.told: list[tuple[float, float | None, str | None]] = []

    @property
    def shown(self) -> bool:
        return True

    def show(self, done: float, total: float | None = None, facts: str | None = None) -> None:
        self.told.append((done, total, facts))


def test_a_bar_knows_the_end_of_a_file() -> None:
    """The share of a file is that of its bytes, the rate that of its tasks."""
    clock, bar = HandClock(), Shown()
    progress = LoadProgress(
        shown=bar, share=lambda tasks: (tasks * 50, 100_000), clock=clock, batch="b"
    )
    clock.at_s += 2.0
    progress.show(1)
    clock.at_s += 2.0
    progress.show(1000)

    assert bar.told == [
        (50, 100_000, "1 task  0 %  0.5 per s"),
        (50_000, 100_000, "1,000 tasks  50 %  250 per s  0:00:02 left"),
    ]


def test_a_pipe_gets_a_line_every_half_minute(capsys: pytest.CaptureFixture[str]) -> None:
    """A short load says nothing; a stream has no end that anybody knows."""
    clock = HandClock()
    progress = LoadProgress(
        shown=Bar(None, task=TaskID(0)), share=lambda tasks: (tasks, None), clock=clock, batch="b"
    )
    for tasks in range(60, 70):
        clock.at_s += LINE_S / 3
        progress.show(tasks)

    assert capsys.readouterr().err.splitlines() == [
        "loading b: 62 tasks, 2.1 per s",
        "loading b: 65 tasks, 1.1 per s",
        "loading b: 68 tasks, 0.1 per s",
    ]
