"""A disk that is filled while another program writes to it."""

from pathlib import Path

import pytest

from tests.faults.servers import Disk


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A fake disk that is not full after the first two tries."""
    disk, answers = Disk.__new__(Disk), [False, False, True]
    disk.folder = tmp_path
    monkeypatch.setattr(disk, "_resize", lambda _size: answers.pop(0) if answers else False)
    return disk


def test_a_disk_that_grew_meanwhile_is_filled_all_the_same(disk: Disk) -> None:
    """A disk that grew meanwhile is filled all the same.

    The kernel refuses a size below the used one. A run in CI was void because of that.
    """
    disk.fill()

    with pytest.raises(RuntimeError, match="all the time"):
        disk.fill()
