"""What `bench peers` and `bench starts` report, with programs that are not started."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, cast

import pytest

from bench import peers, starts
from bench.peers import Run, Way
from bench.site import Site

TASKS = 10


class FakeWorker:
    """A worker of a way; it is killed, or stopped at the end of the run."""

    def __init__(self) -> None:
        self.killed = self.left = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.left = True

    def kill(self) -> None:
        self.killed = True


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[FakeWorker]:
    """Two workers; nothing listens, no time passes, and a still run is soon over."""

    @contextmanager
    def no_llm(*_: object) -> Iterator[tuple[str, None]]:
        yield "http://localhost/v1", None

    def at_once(ready: Callable[[], Any], _seconds: float, what: str) -> None:
        assert ready(), what

    monkeypatch.setattr(peers, "llm", no_llm)
    monkeypatch.setattr(peers, "until", at_once)
    monkeypatch.setattr(peers, "QUIET_S", 0.0)
    return [FakeWorker(), FakeWorker()]


def way(workers: Sequence[FakeWorker], results: int) -> Way:
    return Way("a way", lambda _url, _tasks: cast("Any", workers), lambda: results)


def calls(monkeypatch: pytest.MonkeyPatch, *counts: int) -> None:
    """Let the LLM have seen so many calls of each task."""
    seen = {f"t{number}": count for number, count in enumerate(counts)}
    monkeypatch.setattr(peers, "_calls", lambda _url: seen)


def test_a_run_counts_what_is_missing_and_what_was_called_twice(
    workers: list[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed worker's run has no time if results are missing when nothing moves any more."""
    calls(monkeypatch, 3, 2, *[1] * (TASKS - 2))

    run = peers._run(Path(), way(workers, TASKS - 4), TASKS, kill=True)

    assert run == Run(missing=4, twice=3, took_s=None)
    assert [worker.killed for worker in workers] == [True, False]
    assert all(worker.left for worker in workers)


def test_a_run_that_ends_has_its_time(
    workers: list[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is killed in a calm run."""
    calls(monkeypatch, *[1] * TASKS)

    run = peers._run(Path(), way(workers, TASKS), TASKS, kill=False)

    assert (run.missing, run.twice, run.took_s is not None) == (0, 0, True)
    assert not any(worker.killed for worker in workers)


@pytest.mark.parametrize(
    ("calm", "killed", "row"),
    [
        (Run(0, 0, 2.0), Run(3, 1, None), ["a way", "5", "3", "1", "never"]),
        (Run(1, 0, None), Run(0, 4, 18.4), ["a way", "-", "0", "4", "18 s"]),
    ],
)
def test_a_row_of_the_table(calm: Run, killed: Run, row: list[str]) -> None:
    """The speed is that of the calm run; the rest is told of the run with the kill."""
    assert peers._row("a way", TASKS, calm, killed) == row
    assert len(row) == len(peers.HEAD)


def test_results_of_the_loop_are_its_lines(tmp_path: Path) -> None:
    """A file that is not there yet has none; a line that was not ended does not count."""
    path = tmp_path / "out.jsonl"

    assert peers._lines(path) == 0
    path.write_bytes(b'{"id":"t0"}\n{"id":"t1"}\n{"id"')
    assert peers._lines(path) == 2


def test_a_start_is_the_median_beside_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command and the import run in turn; one slow run changes nothing."""
    took = iter([0.1, 0.6, 0.1, 9.0, 0.2, 0.4])
    ran: list[tuple[str, ...]] = []

    def seconds(_site: Site, *arguments: str) -> float:
        ran.append(arguments)
        return next(took)

    monkeypatch.setattr(starts, "_seconds", seconds)
    site = cast("Site", type("FakeSite", (), {"parts": "embedded"})())

    time, ratio = starts._start(site, ("--help",), 5.0, 3)

    assert (time.what, time.value, time.unit) == ("docllm --help: time", 0.6, "s")
    assert ratio.value == pytest.approx(6.0)
    assert ratio.goal == 5.0
    command = ("-P", "-m", "docllm", "--help")
    assert ran == [starts.IMPORT, command] * 3
