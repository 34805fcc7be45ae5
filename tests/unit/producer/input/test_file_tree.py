"""The files that a folder or a glob means, and their order."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from docllm.producer.input.documents import documents_batch
from docllm.producer.input.lines import InvalidLine
from docllm.producer.input.object_documents import objects_batch
from docllm.schemas.errors import ConfigError
from tests.unit.producer.input.test_documents import fill, ids, read, reader


def test_a_folder_gives_every_file_in_sorted_order(tmp_path: Path) -> None:
    """Ids are paths below the folder, sorted as whole paths, numbered from 1.

    Hidden files are left out.
    """
    names = ["b.txt", "a/z.txt", "a.txt", "a/b/c.txt", "A.txt", "\u00e4.txt"]
    fill(tmp_path, *names, ".hidden", ".git/config")

    lines = read(tmp_path)

    assert ids(lines) == sorted(names)
    assert [line.line for line in lines] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.txt", ["a.txt", "b.txt"]),
        ("**/*.txt", ["a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt"]),
        ("**", ["a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt", "sub/e.md"]),
        ("sub/*", ["c.txt", "e.md"]),
        ("sub/**/*.txt", ["c.txt", "deep/d.txt"]),
        ("*/deep/?.txt", ["sub/deep/d.txt"]),
        ("[ab].txt", ["a.txt", "b.txt"]),
        ("sub/e.md", ["e.md"]),
        ("sub", ["c.txt", "deep/d.txt", "e.md"]),
        (".hidden/*", ["f.txt"]),
        ("**/.h*/*", [".hidden/f.txt"]),
    ],
)
def test_a_glob_gives_ids_below_its_fixed_part(
    tmp_path: Path, pattern: str, expected: list[str]
) -> None:
    """A glob's ids begin behind its part before the first wildcard.

    A hidden name must be written with its dot.
    """
    fill(tmp_path, "a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt", "sub/e.md", ".hidden/f.txt")

    assert ids(read(tmp_path / pattern)) == expected


@pytest.mark.parametrize(
    ("pattern", "fix"),
    [("**.txt", "**/*.txt for any depth, or *.txt"), ("*/a**/b", "**/a* for any depth, or a*")],
)
def test_a_depth_beside_other_characters_is_a_usage_error(
    tmp_path: Path, pattern: str, fix: str
) -> None:
    """It would leave out the files of deeper folders, which whoever writes it means."""
    fill(tmp_path, "a.txt", "sub/b.txt")

    for source in (f"{tmp_path}/{pattern}", f"s3://bucket/{pattern}"):
        with pytest.raises(ConfigError, match=re.escape(fix)):
            objects_batch(source) if source.startswith("s3") else read(source)


def test_links_are_followed_inside_the_tree_only(tmp_path: Path) -> None:
    """A link to a file of the tree is a document; one that leaves the tree is reported.

    So is a link that leads nowhere. A linked folder inside the tree adds nothing.
    """
    root = fill(tmp_path / "root", "a.txt", "sub/b.txt")
    outside = fill(tmp_path / "outside", "secret.txt")
    (root / "inside.txt").symlink_to(root / "a.txt")
    (root / "dangling.txt").symlink_to(root / "none")
    (root / "out.txt").symlink_to(outside / "secret.txt")
    (root / "out").symlink_to(outside)
    (root / "again").symlink_to(root / "sub")

    lines = read(root)

    assert ids(lines) == ["a.txt", "inside.txt", "sub/b.txt"]
    assert sorted(
        f"{line.document} {line.error}" for line in lines if isinstance(line, InvalidLine)
    ) == [
        "dangling.txt is a link to a file that does not exist",
        "out is a link out of the folder",
        "out.txt is a link out of the folder",
    ]


def test_a_loop_of_links_is_a_bad_document(tmp_path: Path) -> None:
    """A loop of links is reported and stops nothing, also among the files to leave out."""
    fill(tmp_path, "a.txt")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "there").symlink_to("back")
    (tmp_path / "back").symlink_to("there")

    lines = read(tmp_path, leave_out=[tmp_path / "back"])

    assert ids(lines) == ["a.txt"]
    assert [f"{line.document} {line.error}" for line in lines if isinstance(line, InvalidLine)] == [
        "loop is a link that cannot be followed: Too many levels of symbolic links",
        "there is a link that cannot be followed: Too many levels of symbolic links",
    ]


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """Make a folder with `c.txt`, `a/b.txt`, and a file 1,100 folders down."""
    root = fill(tmp_path / "deep", "a/b.txt", "c.txt")
    here = Path.cwd()
    os.chdir(root)
    for _ in range(1100):
        Path("a").mkdir(exist_ok=True)
        os.chdir("a")
    Path("x.txt").write_text("x")
    os.chdir(here)
    yield root
    subprocess.run(["rm", "-rf", root], check=True)  # pytest's own removal would recurse too deep


@pytest.mark.parametrize(
    ("pattern", "expected"), [("", ["a/b.txt", "c.txt"]), ("**/a/**/*.txt", ["a/b.txt"])]
)
def test_folders_may_be_deep(deep: Path, pattern: str, expected: list[str]) -> None:
    """Folders may be deeper than Python's recursion limit; only too long an id is bad."""
    lines = read(deep / pattern)

    assert ids(lines) == expected
    assert [line.field for line in lines if isinstance(line, InvalidLine)] == ["id"]


def test_a_pipe_is_reported_and_not_opened(tmp_path: Path) -> None:
    """A pipe is reported and not opened, because it would block the reader for ever."""
    os.mkfifo(tmp_path / "pipe")

    assert [str(line) for line in read(tmp_path)] == [
        "pipe: is not a regular file; move it elsewhere, or name the documents with a pattern"
    ]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("n" * 300 + "/docs", "cannot be looked at: File name too long"),
        ("n" * 300 + "/*.txt", "cannot be looked at: File name too long"),
        ("https://docs.example.com/reports/", "a web server lists no documents; load lines"),
        ("http://h/*.txt", "a web server lists no documents; load lines"),
        ("~nobody-of-this-name/docs", "names a user without a home folder; write the whole path"),
        ("~nobody-of-this-name", "names a user without a home folder; write the whole path"),
    ],
)
def test_a_source_that_is_no_folder_is_a_usage_error(source: str, words: str) -> None:
    """A name that is too long, a web server, or the home of an unknown user.

    The batch is named after the folder, so it cannot be named either.
    """
    for use in (lambda: reader().read(source), lambda: documents_batch(source)):
        with pytest.raises(ConfigError, match=words):
            use()


def test_a_pattern_may_be_longer_than_a_name(tmp_path: Path) -> None:
    """A pattern may be longer than a name can be: a set of letters counts as one."""
    fill(tmp_path, "a.txt")

    assert ids(read(tmp_path / f"[{'abc' * 100}].txt")) == ["a.txt"]


def test_a_folder_that_cannot_be_listed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document folder that cannot be listed is named in the error.

    That folder has no id of its own, so the error used to have no name.
    """
    monkeypatch.setattr("os.scandir", lambda _: (tmp_path / "none").iterdir())

    (bad,) = read(tmp_path)

    assert isinstance(bad, InvalidLine)
    assert (bad.document, bad.error) == (
        str(tmp_path),
        "cannot be listed: No such file or directory",
    )
