"""Uploaded files: whole or not there, private, and gone after their time."""

import io
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from docllm.producer.serve import uploads
from docllm.producer.serve.uploads import Uploads
from tests.support.clock import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def kept(tmp_path: Path, clock: HandClock) -> Uploads:
    """No files yet."""
    return Uploads(tmp_path / "files", clock)


def test_a_file_is_kept_for_its_owner(kept: Uploads, tmp_path: Path) -> None:
    """Whatever its name is, it lies in the folder."""
    upload = kept.keep(io.BytesIO(b"abc"), "../../etc/passwd")

    assert kept.find(upload.id) == upload
    assert (upload.filename, upload.bytes) == ("../../etc/passwd", 3)
    path = kept.content(upload)
    assert path.read_bytes() == b"abc"
    assert path.is_relative_to(tmp_path / "files")
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent, path.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]


@pytest.mark.parametrize("name", ["", ".", "..", "file-", "../secret", "file-" + "g" * 32, "files"])
def test_an_id_is_no_path(kept: Uploads, tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "about.json").write_text("{}")
    kept.keep(io.BytesIO(b""), "")

    assert kept.find(name) is None


class Torn(io.BytesIO):
    """A file whose end cannot be read."""

    def read(self, size: int | None = -1) -> bytes:
        if self.tell():
            raise OSError("gone")
        return super().read(2)


def test_a_file_that_does_not_come_whole_leaves_nothing(kept: Uploads, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="gone"):
        kept.keep(Torn(b"abc"), "a")

    assert (list((tmp_path / "files").iterdir()), kept.all()) == ([], [])


def test_files_are_listed_newest_first(kept: Uploads, clock: HandClock) -> None:
    first = kept.keep(io.BytesIO(b"1"), "1")
    clock.at_s += 1
    second = kept.keep(io.BytesIO(b"2"), "2")

    assert kept.all() == [second, first]
    kept.delete(second)
    assert kept.all() == [first]
    kept.delete(second)


@pytest.mark.parametrize("look", [Uploads.all, Uploads.clean])
def test_a_folder_that_is_not_there_has_no_files(
    kept: Uploads, look: Callable[[Uploads], object]
) -> None:
    assert not look(kept)


def test_a_file_goes_after_its_time(kept: Uploads, clock: HandClock, tmp_path: Path) -> None:
    """It is not found from then on, and the next cleaning removes it and what was left half."""
    old = kept.keep(io.BytesIO(b"1"), "1", 3600)
    new = kept.keep(io.BytesIO(b"2"), "2")
    strange = [tmp_path / "files" / name for name in ("mine", ".mine", "file-mine")]
    for each in strange:
        each.mkdir()
    draft = tmp_path / "files" / f".{'0' * 32}"
    draft.mkdir()
    os.utime(draft, (clock.at_s, clock.at_s))
    clock.at_s += 3600

    assert (kept.find(old.id), kept.find(new.id)) == (None, new)
    kept.clean()
    assert draft.exists()
    assert not kept.content(old).exists()
    clock.at_s += 86_400
    kept.clean()
    assert {*(tmp_path / "files").iterdir()} == {*strange, kept.content(new).parent}


def test_numbers_are_not_guessed_and_rise(clock: HandClock) -> None:
    first, twin = uploads.new_number(clock), uploads.new_number(clock)
    clock.at_s += 0.001

    assert len({first, twin}) == 2
    assert uploads.new_number(clock) > max(first, twin)
