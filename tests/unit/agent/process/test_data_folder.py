"""An agent notices when its open files are removed or replaced."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from docllm.agent.process.data_folder import watch_of_files
from docllm.schemas.errors import UnsafeStateError


class Rested(Exception):  # noqa: N818 - not an error: the test has looked often enough
    """The steps are used up."""


class Steps:
    """A clock that performs the next step at each sleep."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = iter(steps)

    def now_s(self) -> float:
        return 0.0

    utc_s = now_s

    async def sleep(self, _delay_s: float) -> None:
        for step in self._steps:
            step()
            return
        raise Rested


def replace(path: Path) -> None:
    """Restore a backup, as a person does."""
    backup = path.with_suffix(".backup")
    backup.write_bytes(path.read_bytes())
    backup.replace(path)


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "ledger.sqlite"
    path.parent.mkdir()
    path.write_bytes(b"ledger")
    return path


@pytest.mark.parametrize(
    "harm", [Path.unlink, replace, lambda path: path.parent.rename(path.parent.with_name("old"))]
)
def test_a_file_that_is_gone_or_another_ends_the_agent(
    path: Path, harm: Callable[[Path], object]
) -> None:
    """The agent ends: its connections still use the old file, which nobody else sees."""
    watch = watch_of_files([path], clock=Steps(lambda: append(path), lambda: harm(path)))

    with pytest.raises(UnsafeStateError, match=r"ledger\.sqlite was removed or replaced"):
        asyncio.run(watch())


def test_growing_and_absent_files_are_no_alarm(path: Path) -> None:
    """Files that grow, or that never existed, do not end the agent.

    A ledger on a server has no file here.
    """
    later = path.with_name("bus.sqlite")
    watch = watch_of_files(
        [path, later], clock=Steps(lambda: append(path), later.touch, lambda: append(path))
    )

    with pytest.raises(Rested):
        asyncio.run(watch())
