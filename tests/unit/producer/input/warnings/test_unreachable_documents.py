"""Documents that agents may not read are reported with the setting that would allow them."""

from pathlib import Path

import pytest

from docllm.producer.input.warnings.unreachable_documents import UnreachableDocuments


def told(roots: list[Path], *paths: str) -> tuple[int, str]:
    documents = UnreachableDocuments(roots)
    for path in paths:
        documents.add(f"file://{path}")
    return documents.count, str(documents).removeprefix("DOCLLM_DOCUMENT_ROOTS=")


@pytest.mark.parametrize(
    ("paths", "folders"),
    [
        (["/d/e/f/a.txt"], "/d/e/f"),
        (["/d/e/f/a.txt", "/d/e/f/g/b.txt", "/d/e/h/c.txt"], "/d/e"),
        (["/d/e/a.txt", "/d/f/b.txt"], "/d/e:/d/f"),
        (["/d/a%20b/c.txt"], "/d/a b"),
        (["/a/1/x", "/a/2/x", "/a/3/x", "/a/4/x"], "/a/1:/a/2:/a/3, and others"),
        (["/d/%00"], ""),
    ],
)
def test_the_folders_that_hold_them_are_named(paths: list[str], folders: str) -> None:
    """The nearest folder that holds all files of a place is named, and a few such folders.

    A path that is not valid needs none.
    """
    assert told([], *paths)[1] == folders


def test_documents_below_a_root_need_no_advice_and_roots_stay(tmp_path: Path) -> None:
    """Links are resolved as agents do it, and the advice keeps the present roots."""
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
    (tmp_path / "root").symlink_to(tmp_path / "in")

    assert told([tmp_path / "root"], f"{tmp_path}/in/a.txt", f"{tmp_path}/root/a.txt")[0] == 0
    assert told([tmp_path / "root"], f"{tmp_path}/in/link/a.txt") == (
        1,
        f"{tmp_path}/in:{tmp_path}/out",
    )


def test_files_that_no_root_could_open_are_not_counted(tmp_path: Path) -> None:
    """Hidden files and docllm's own are not counted: another root would not help.

    A hidden folder may be a root.
    """
    documents = UnreachableDocuments([tmp_path], own=[tmp_path / "data"])
    for name in (".env", "docllm.toml", "a.rejects.jsonl", "data/ledger.sqlite", "a.txt"):
        documents.add((tmp_path / name).as_uri())

    assert documents.count == 0
    documents.add((tmp_path / ".texts" / "a.txt").as_uri())
    assert (documents.count, str(documents)) == (
        1,
        f"DOCLLM_DOCUMENT_ROOTS={tmp_path}:{tmp_path}/.texts",
    )
