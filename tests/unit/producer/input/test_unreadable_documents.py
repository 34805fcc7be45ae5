"""Documents that agents may not read are reported with the setting that would allow them."""

from pathlib import Path

import pytest

from docllm.producer.input.load_warnings import UnreadableDocuments
from docllm.schemas.settings.config import Config

ROOTS = "outside the folders that agents may read, so they would be dead; before you start agents"
ALLOW = "below no prefix that agents may read, so they would be dead; before you start agents"


def told(config: Config, *uris: str) -> list[str]:
    documents = UnreadableDocuments(config)
    for uri in uris:
        documents.add(uri)
    return list(documents.warnings())


def with_roots(*roots: Path) -> Config:
    return Config(document_roots=roots, data_dir=Path("/own/data"))


@pytest.mark.parametrize(
    ("paths", "folders"),
    [
        (["/d/e/f/a.txt"], "/d/e/f"),
        (["/d/e/f/a.txt", "/d/e/f/g/b.txt", "/d/e/h/c.txt"], "/d/e"),
        (["/d/e/a.txt", "/d/f/b.txt"], "/d/e:/d/f"),
        (["/d/a%20b/c.txt"], "/d/a b"),
        (["/a/1/x", "/a/2/x", "/a/3/x", "/a/4/x"], "/a/1:/a/2:/a/3, and others"),
    ],
)
def test_the_folders_that_hold_them_are_named(paths: list[str], folders: str) -> None:
    """The nearest folder that holds all files of a place is named, and a few such folders."""
    (warning,) = told(with_roots(), *(f"file://{path}" for path in paths))
    tasks = "1 task" if len(paths) == 1 else f"{len(paths)} tasks"
    setting = f"DOCLLM_DOCUMENT_ROOTS={folders}"
    assert warning == f"{tasks} with a document by URI {ROOTS}, set: {setting}"


def test_documents_below_a_root_need_no_advice_and_roots_stay(tmp_path: Path) -> None:
    """Links are resolved as agents do it, and the advice keeps the present roots."""
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
    (tmp_path / "root").symlink_to(tmp_path / "in")
    config = with_roots(tmp_path / "root")
    assert told(config, f"file://{tmp_path}/in/a.txt", f"file://{tmp_path}/root/a.txt") == []
    (warning,) = told(config, f"file://{tmp_path}/in/link/a.txt")
    assert warning.startswith("1 task with")
    assert warning.endswith(f"DOCLLM_DOCUMENT_ROOTS={tmp_path}/in:{tmp_path}/out")


def test_files_that_no_root_could_open_are_not_counted(tmp_path: Path) -> None:
    """Hidden files, docllm's own and what is no path are not counted: no root would help.

    A hidden folder may be a root.
    """
    config = Config(document_roots=(tmp_path,), data_dir=tmp_path / "data")
    names = (".env", "docllm.toml", "a.rejects.jsonl", "data/ledger.sqlite", "a.txt")
    assert told(config, "file:///d/%00", *((tmp_path / name).as_uri() for name in names)) == []
    (warning,) = told(config, (tmp_path / ".texts" / "a.txt").as_uri())
    assert warning.endswith(f"DOCLLM_DOCUMENT_ROOTS={tmp_path}:{tmp_path}/.texts")


@pytest.mark.parametrize(
    ("uris", "prefixes", "tasks", "setting"),
    [
        (
            ["s3://b/in/1", "s3://b/in/2", "s3://b/other/3"],
            ("s3://b/in/",),
            "1 task",
            "s3://b/in/,s3://b/other/",
        ),
        (
            ["s3://b/in/a/1", "s3://b/in/b/2", "s3://b/in/b/c/3", "https://h/x/y?z=/../1"],
            (),
            "4 tasks",
            "s3://b/in/,https://h/x/",
        ),
        (
            [f"gs://b{number}/a" for number in range(5)],
            (),
            "5 tasks",
            "gs://b0/,gs://b1/,gs://b2/, and others",
        ),
    ],
)
def test_the_setting_for_objects_names_the_folder_of_each_bucket(
    uris: list[str], prefixes: tuple[str, ...], tasks: str, setting: str
) -> None:
    """The deepest folder that holds all documents of a bucket or a server; a few of them."""
    (warning,) = told(Config(document_allow=prefixes), *uris)
    assert warning == (
        f"{tasks} with a document by URI {ALLOW}, set: DOCLLM_DOCUMENT_ALLOW={setting}"
    )
