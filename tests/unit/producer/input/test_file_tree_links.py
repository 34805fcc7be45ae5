"""What a pattern passes and cannot see into is reported, wherever it stands in the tree."""

import os
import shutil
from collections.abc import Collection
from pathlib import Path

import pytest

from docllm.producer.input import file_tree
from docllm.producer.input.documents import DocumentReader
from docllm.producer.input.excluded_files import inodes
from docllm.producer.input.file_tree import FileTree
from docllm.producer.input.lines import InvalidLine
from tests.unit.producer.input.test_documents import fill, ids, read

OUT = "is a link out of the folder"
GONE = "is a link to a file that does not exist"
HIDES = "is a link to a folder whose documents the pattern does not mean"


def problems(source: object) -> list[str]:
    return [
        f"{line.document} {line.error}" for line in read(source) if isinstance(line, InvalidLine)
    ]


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Make a folder with documents, and links that lead out of it and nowhere."""
    root = fill(tmp_path / "reports", "a.txt", "2024/b.txt", "2024/notes.md")
    fill(tmp_path / "archive", "2023/c.txt", "other.txt", "other.md")
    (root / "2023").symlink_to("../archive/2023")
    (root / "broken").symlink_to("nowhere")
    (root / "2024" / "deep").symlink_to(tmp_path / "archive")
    (root / "other.md").symlink_to("../archive/other.md")
    (root / ".hidden").symlink_to("../archive")
    return root


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("**/*.txt", [f"2023 {OUT}", f"2024/deep {OUT}", f"broken {GONE}"]),
        ("*/*.txt", [f"2023 {OUT}", f"broken {GONE}"]),
        ("20*/*.txt", [f"2023 {OUT}"]),
        ("2*/**/c.txt", [f"2023 {OUT}", f"2024/deep {OUT}"]),
        ("*/deep/*.txt", [f"2023 {OUT}", f"2024/deep {OUT}", f"broken {GONE}"]),
        ("*.txt", []),
        ("*4/*.txt", []),
        ("*.md", [f"other.md {OUT}"]),
        (".h*/*.txt", [f".hidden {OUT}"]),
    ],
)
def test_a_link_that_may_hide_documents_is_reported(
    reports: Path, pattern: str, expected: list[str]
) -> None:
    """The link's own name need not match; one that the pattern does not pass is nobody's loss."""
    assert problems(reports / pattern) == expected
    assert "c.txt" not in str(ids(read(reports / pattern)))


def test_a_linked_folder_of_the_tree_is_reported_only_if_it_hides_something(
    tmp_path: Path,
) -> None:
    """Its documents are found at their own place, unless the pattern does not lead there."""
    root = fill(tmp_path / "in", "a/b/c.txt", ".kept/d.txt")
    (root / "shown").symlink_to("a/b")
    (root / "unseen").symlink_to(".kept")
    (root / "up").symlink_to(".")

    assert problems(root) == [f"unseen {HIDES}"]
    assert problems(root / "**/*.txt") == [f"unseen {HIDES}"]
    assert problems(root / "*/*.txt") == [f"shown {HIDES}", f"unseen {HIDES}", f"up {HIDES}"]
    assert ids(read(root / "**/*.txt")) == ["a/b/c.txt"]


def test_a_loop_that_a_pattern_passes_is_reported(tmp_path: Path) -> None:
    """Nobody can tell what a link stands for that cannot be followed."""
    fill(tmp_path, "a.txt")
    (tmp_path / "loop").symlink_to("loop")

    (problem,) = problems(tmp_path / "**/*.txt")

    assert problem.startswith("loop is a link that cannot be followed")


@pytest.mark.parametrize(("pattern", "count"), [("**/*.txt", 1), ("s*/*.txt", 1), ("b/*.txt", 0)])
def test_only_folders_that_a_pattern_passes_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, count: int
) -> None:
    """One without permission is reported if documents may be in it, and not otherwise."""
    fill(tmp_path, "sealed/a.txt", "b/b.txt")
    listed = os.scandir

    def scandir(folder: Path) -> object:
        if folder.name == "sealed":
            raise PermissionError(13, "Permission denied")
        return listed(folder)

    monkeypatch.setattr("os.scandir", scandir)

    assert problems(tmp_path / pattern) == ["sealed cannot be listed: Permission denied"] * count


def test_a_file_that_vanishes_is_reported(tmp_path: Path) -> None:
    """The folder was listed before, so its documents were expected."""
    fill(tmp_path, "sub/a.txt", "sub/b.txt")
    reader = DocumentReader(question={"prompt": "{document}"}).read(str(tmp_path / "**/*.txt"))
    lines = [next(reader)]
    shutil.rmtree(tmp_path / "sub")
    lines += reader

    assert [str(line.error) for line in lines if isinstance(line, InvalidLine)] == [
        "cannot be read: No such file or directory"
    ]


@pytest.mark.parametrize(
    ("pattern", "reported"),
    [
        ("**/*.txt", ["A.TXT", "sub/b.Txt"]),
        ("*.txt", ["A.TXT"]),
        ("[c-z]*.txt", []),
        ("**", []),
        ("*.[tT]xt", []),
    ],
)
def test_a_name_whose_ending_has_another_case_is_reported(
    tmp_path: Path, pattern: str, reported: list[str]
) -> None:
    """Cameras and scanners write `.TXT`; such a file is not left out without a word."""
    fill(tmp_path, "A.TXT", "c.txt", "sub/b.Txt", "sub/d.txt")

    assert problems(tmp_path / pattern) == [
        f"{name} matches the pattern but for the case of its ending" for name in reported
    ]


def test_own_files_are_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of hard links is no reason to list the data folder for each of them."""
    own, root = tmp_path / "own", tmp_path / "root"
    own.mkdir()
    root.mkdir()
    (own / "ledger.db").write_text("x")
    for name in "abc":
        (root / name).write_text(name)
        (root / f"{name}2").hardlink_to(root / name)
    (root / "d").hardlink_to(own / "ledger.db")
    listings: list[object] = []

    def counted(folders: Collection[Path]) -> frozenset[tuple[int, int]]:
        listings.append(folders)
        return inodes(folders)

    monkeypatch.setattr(file_tree, "inodes", counted)
    entries = list(FileTree.of(str(root), leave_out=[own]).entries())

    assert [entry.id for entry in entries if entry.problem] == ["d"]
    assert len(listings) == 1
