"""The rejects file: its place, its content, and the files that it never overwrites."""

import errno
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import jsonschema_rs
import pytest

from docllm.producer.input import rejects as module
from docllm.producer.input.lines import InvalidLine, read_lines
from docllm.producer.input.rejects import Rejects, TooManyRejectsError, rejects_path
from docllm.schemas.errors import ConfigError

BAD = InvalidLine(
    line=3, field="id", error="is missing", fix="give it one", text='{"prompt": "Say hello"}'
)
SCHEMA = Path(__file__).parents[4] / "schemas" / "json" / "reject.json"


def interrupted(path: Path, bad: list[InvalidLine]) -> None:
    with Rejects(path) as rejects:
        for line in bad:
            rejects.add(line)
        raise KeyboardInterrupt


def failing(number: int) -> Callable[..., NoReturn]:
    """Return a replacement for a system function that fails with this error."""

    def fail(*_given: object, **_named: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("umask", [0o022, 0])
def test_only_its_owner_reads_a_rejects_file(tmp_path: Path, umask: int) -> None:
    """Only its owner reads a rejects file, even if an older file had a wider mode.

    It holds lines of the input, which every local user could read otherwise.
    """
    path = tmp_path / "t.rejects.jsonl"
    path.touch(0o644)
    before = os.umask(umask)
    try:
        with Rejects(path) as rejects:
            rejects.add(BAD)
    finally:
        os.umask(before)

    assert path.stat().st_mode & 0o777 == 0o600


def test_each_refused_line_is_in_the_file(tmp_path: Path) -> None:
    """Each refused line is an object that the published schema accepts."""
    with Rejects(tmp_path / "t.rejects.jsonl") as rejects:
        rejects.add(BAD)
        rejects.add(
            InvalidLine(
                line=4, field="", error="is 4000000 bytes long", fix="use input.uri", text=None
            )
        )

    lines = [json.loads(line) for line in rejects.path.read_text().splitlines()]
    assert lines[0] == {
        "line": 3,
        "field": "id",
        "error": "is missing",
        "fix": "give it one",
        "text": BAD.text,
    }
    validator = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text()))
    assert [validator.is_valid(line) for line in lines] == [True, True]
    assert (rejects.count, rejects.repairable) == (2, 1)


@pytest.mark.parametrize(("quotes", "kept"), [(1_400_000, True), (1_600_000, False)])
def test_a_text_is_kept_where_a_load_takes_it_again(
    tmp_path: Path, quotes: int, *, kept: bool
) -> None:
    """A text is stored only if a load would accept the line.

    In the file a quote takes twice its space. A repaired line used to be refused again for its
    size.
    """
    path = tmp_path / "t.rejects.jsonl"
    with Rejects(path) as rejects:
        rejects.add(
            InvalidLine(
                line=1, field="id", error="is missing", fix="give it one", text='"' * quotes
            )
        )

    (line,) = read_lines(str(path), stdin=io.BytesIO())

    assert isinstance(line, InvalidLine)
    assert (rejects.repairable, "bytes long" in line.error, "is not JSON" in line.error) == (
        kept,
        False,
        kept,
    )


def test_each_load_replaces_the_file(tmp_path: Path) -> None:
    """A load with rejects replaces the older file; one without rejects removes it."""
    path = tmp_path / "t.rejects.jsonl"
    for number in (1, 2):
        with Rejects(path) as rejects:
            rejects.add(InvalidLine(line=number, field="", error="e", fix="f", text=None))
    assert [json.loads(line)["line"] for line in path.read_text().splitlines()] == [2]

    with Rejects(path):
        pass

    assert list(tmp_path.iterdir()) == []


def test_a_load_that_fails_leaves_the_older_file(tmp_path: Path) -> None:
    """A load that fails leaves the older file as it was, and no draft."""
    path = tmp_path / "t.rejects.jsonl"
    with Rejects(path) as rejects:
        rejects.add(BAD)
    before = path.read_bytes()

    for bad in ([BAD, BAD], []):
        with pytest.raises(KeyboardInterrupt):
            interrupted(path, bad)

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", ['{"id": "a"}\n', "notes\n"])
def test_a_foreign_file_is_left_alone(tmp_path: Path, content: str) -> None:
    """A file of that name that docllm did not write ends the load before it begins."""
    path = tmp_path / "t.rejects.jsonl"
    path.write_text(content)

    with pytest.raises(ConfigError, match="not a rejects file"), Rejects(path):
        pass

    assert path.read_text() == content


def test_rejects_lie_beside_their_file(tmp_path: Path) -> None:
    """A file's rejects lie beside it; others in the current folder, named after the batch.

    The others are those of standard input and documents.
    """
    (tmp_path / "data").mkdir()

    assert (
        rejects_path("data/t.jsonl", "t", tmp_path) == tmp_path / "data" / "t.jsonl.rejects.jsonl"
    )
    assert rejects_path("-", "spring/1", tmp_path) == tmp_path / "spring_1.rejects.jsonl"


def test_rejects_of_a_file_in_a_read_only_folder_lie_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejects of a file in a read-only folder lie in the current folder."""
    monkeypatch.setattr("os.access", lambda *_: False)

    assert rejects_path("/mnt/data/t.jsonl", "t", tmp_path) == tmp_path / "t.jsonl.rejects.jsonl"


def test_rejects_of_a_file_with_the_longest_name_are_named_after_the_batch(
    tmp_path: Path,
) -> None:
    """Rejects of a file with the longest possible name are named after the batch.

    No name could be built from the file's. The load used to end with a traceback, bad line or not.
    """
    path = rejects_path(str(tmp_path / ("\u6587" * 80)), "b", tmp_path)

    with Rejects(path) as rejects:
        rejects.add(BAD)

    assert [file.name for file in tmp_path.iterdir()] == ["b.rejects.jsonl"]


def test_a_load_without_rejects_ends_well_on_a_disk_that_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load without rejects succeeds on a read-only disk.

    Such a disk refuses to remove even a missing file. All tasks were loaded, but the exit code was
    that of a bug.
    """
    monkeypatch.setattr("os.unlink", failing(errno.EROFS))

    with Rejects(tmp_path / "t.rejects.jsonl"):
        pass


def test_a_folder_that_may_not_be_looked_into_holds_no_rejects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder that may not be read, no rejects file is assumed.

    Whoever reads the input reports whether it can be read.
    """
    monkeypatch.setattr(Path, "exists", failing(errno.EACCES))

    with Rejects(tmp_path / "t.rejects.jsonl"):
        pass


def test_a_disk_that_is_full_at_the_end_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full when the file is closed is a usage error, and no bug of docllm.

    The first lines are written only then.
    """
    rejects = Rejects(tmp_path / "t.rejects.jsonl")
    monkeypatch.setattr("os.fsync", failing(errno.ENOSPC))

    with (
        pytest.raises(ConfigError, match=r"t\.rejects\.jsonl cannot be written: No space left"),
        rejects,
    ):
        rejects.add(BAD)

    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_stays_full_hides_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a load ends for another reason, a full disk does not replace that error."""
    monkeypatch.setattr(Path, "unlink", failing(errno.EROFS))

    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "t.rejects.jsonl", [BAD])


@pytest.mark.parametrize(("most", "lines"), [(1, "1 bad line"), (2, "2 bad lines")])
def test_a_rejects_file_takes_as_many_lines_as_are_allowed(
    tmp_path: Path, most: int, lines: str
) -> None:
    """A rejects file takes at most the allowed number of lines, and keeps them.

    465 bytes of packed input used to make 33 MB of rejects.
    """
    with Rejects(tmp_path / "t.rejects.jsonl", max_lines=most) as rejects:
        for _ in range(most):
            rejects.add(BAD)
        with pytest.raises(
            TooManyRejectsError,
            match=rf"stopped after {lines}, the most that --max-rejects allows \({most}\); "
            r"repair .*--max-rejects N",
        ):
            rejects.add(BAD)

    assert (rejects.count, len(rejects.path.read_bytes().splitlines())) == (most, most)


def test_a_rejects_file_takes_as_many_bytes_as_a_disk_can_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rejects file has a limit in bytes; 0 lifts it.

    Ten thousand lines of three megabytes would fill the disk, though they are small when packed.
    """
    monkeypatch.setattr(module, "MAX_REJECTS_BYTES", 250)
    with Rejects(tmp_path / "t.rejects.jsonl") as rejects:
        rejects.add(BAD)
        rejects.add(BAD)
        with pytest.raises(TooManyRejectsError, match="stopped after 2 bad lines, 0 MiB of them"):
            rejects.add(BAD)
    with Rejects(tmp_path / "any.rejects.jsonl", max_lines=0) as rejects:
        for _ in range(3):
            rejects.add(BAD)

    assert rejects.count == 3
