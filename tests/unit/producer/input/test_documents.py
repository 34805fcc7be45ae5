"""Documents: which files a folder or a glob selects, their ids, their order, their tasks."""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producer.input.documents import (
    MAX_DOCUMENT_BYTES,
    MAX_TEXT_BYTES,
    documents_batch,
    read_documents,
)
from producer.input.lines import Bad, Good
from schemas.errors import ConfigError

PROMPT = "Summarize: {document}"


def fill(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}")
    return root


def read(source: object, **more: Any) -> list[Good | Bad]:
    return list(read_documents(str(source), **{"prompt": PROMPT} | more))


def ids(lines: list[Good | Bad]) -> list[str]:
    return [line.key for line in lines if isinstance(line, Good)]


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


def test_a_small_document_travels_in_the_task(tmp_path: Path) -> None:
    """A small document's line holds id, prompt and text, also with model and schema.

    A byte order mark is not part of the text.
    """
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfSales \xe2\x82\xac rose.\r\n")
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')

    (line,) = read(tmp_path / "*.txt", model="m", schema=schema)

    assert json.loads(line.value) == {
        "id": "a.txt",
        "prompt": PROMPT,
        "input": {"text": "Sales \u20ac rose.\r\n"},
        "model": "m",
        "schema": {"type": "object"},
    }
    assert line.task.text == "Sales \u20ac rose.\r\n"


@pytest.mark.parametrize(
    ("size", "by_uri", "inline"),
    [(MAX_TEXT_BYTES, False, True), (MAX_TEXT_BYTES + 1, False, False), (0, True, False)],
)
def test_a_large_document_stays_where_it_is(
    tmp_path: Path, size: int, *, by_uri: bool, inline: bool
) -> None:
    """Above 256 KiB, or when asked to, the task names the file by URI, size and SHA-256."""
    content = b"x" * size
    path = tmp_path / "with blank & \u00e4.txt"
    path.write_bytes(content)

    (line,) = read(tmp_path, by_uri=by_uri)

    assert (line.task.text is not None) == inline
    if not inline:
        assert (line.task.uri, line.task.size) == (path.as_uri(), size)
        assert line.task.sha256 == hashlib.sha256(content).hexdigest()


def test_reading_again_gives_the_same_bytes(tmp_path: Path) -> None:
    """Reading again gives the same bytes, because a second load must recognize every task."""
    fill(tmp_path, "a.txt", "b.txt")

    assert [line.value for line in read(tmp_path)] == [
        line.value for line in read(f"{tmp_path}/./**")
    ]


def test_what_is_no_text_is_bad_and_stops_nothing(tmp_path: Path) -> None:
    """Files that are binary or wrongly encoded are reported with advice; the others are loaded.

    That holds for inline and for large files.
    """
    (tmp_path / "binary").write_bytes(b"a\0b")
    (tmp_path / "cut").write_bytes("\u20ac".encode()[:2])
    (tmp_path / "large").write_bytes(b"x" * MAX_TEXT_BYTES + b"\xff")
    (tmp_path / "latin1").write_bytes("\u00e4".encode("latin-1"))
    fill(tmp_path, "z.txt")

    *bad, last = read(tmp_path)

    assert [line.error for line in bad] == [
        "binary is not text: it has a zero byte",
        "cut is not UTF-8",
        "large is not UTF-8",
        "latin1 is not UTF-8",
    ]
    assert all(line.fix and line.text is None for line in bad)
    assert ids([last]) == ["z.txt"]


def test_a_document_that_no_agent_reads_is_bad(tmp_path: Path) -> None:
    """A document over 32 MiB is refused unread at the load, not by an agent later."""
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(MAX_DOCUMENT_BYTES + 1)

    assert [line.error for line in read(tmp_path)] == [
        f"huge is {MAX_DOCUMENT_BYTES + 1} bytes long"
    ]


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
    assert sorted(line.error for line in lines if isinstance(line, Bad)) == [
        "dangling.txt is a link to nothing",
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
    assert [line.error for line in lines if isinstance(line, Bad)] == [
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
    Path("x.txt").touch()
    os.chdir(here)
    yield root
    subprocess.run(["rm", "-rf", root], check=True)  # pytest's own removal would recurse too deep


@pytest.mark.parametrize(
    ("pattern", "found"), [("", ["a/b.txt", "c.txt"]), ("**/a/**/*.txt", ["a/b.txt"])]
)
def test_folders_may_be_deep(deep: Path, pattern: str, found: list[str]) -> None:
    """Folders may be deeper than Python's recursion limit; only too long an id is bad."""
    lines = read(deep / pattern)

    assert ids(lines) == found
    assert [line.field for line in lines if isinstance(line, Bad)] == ["id"]


def test_what_is_no_file_is_reported(tmp_path: Path) -> None:
    """A pipe is reported and not opened, because it would block the reader for ever."""
    os.mkfifo(tmp_path / "pipe")

    assert [line.error for line in read(tmp_path)] == ["pipe is not a regular file"]


def test_names_that_are_no_ids_are_bad(tmp_path: Path) -> None:
    """Names that cannot be ids are bad: not UTF-8, too long, or with control characters."""
    fill(tmp_path, "d" * 100 + "/" + "f" * 100, "tab\tname")
    # Pathlib has no plainer way to write it.
    with open(os.fsencode(tmp_path) + b"/bad\xff", "w"):  # noqa: PTH123
        pass

    lines = read(tmp_path)

    assert [(line.field, line.error) for line in lines] == [
        ("", "bad\ufffd has a name that is not UTF-8"),
        ("id", "is 201 bytes long"),
        ("id", "has a control character"),
    ]


def test_what_is_docllms_own_is_left_out(tmp_path: Path) -> None:
    """Data folder, configuration and rejects inside a tree are no documents.

    The key in a file used to go to the provider in a prompt.
    """
    fill(
        tmp_path,
        "a.txt",
        "docllm-data/ledger.sqlite",
        "b.rejects.jsonl",
        "docllm.toml",
        "in/docllm.toml",
        "in/my.toml",
        "in/a.toml",
    )

    lines = read(tmp_path, leave_out=[tmp_path / "docllm-data", tmp_path / "in" / "my.toml"])

    assert ids(lines) == ["a.txt", "in/a.toml"]


def test_a_link_to_a_file_of_docllms_own_is_a_bad_document(tmp_path: Path) -> None:
    """A link to docllm's own file is bad: it would be the file itself under another name."""
    fill(tmp_path, "docllm.toml", "z.txt")
    (tmp_path / "a.txt").symlink_to("docllm.toml")

    bad, good = read(tmp_path)

    assert isinstance(bad, Bad)
    assert bad.error == "a.txt is a link to a file of docllm's own"
    assert ids([good]) == ["z.txt"]


def test_a_hidden_document_goes_into_its_task_or_is_bad(tmp_path: Path) -> None:
    """A hidden document that a glob names is put into its task, or is bad if it is too large.

    No agent reads a hidden file, so a task that names it by URI would be dead.
    """
    fill(tmp_path, ".a.txt")

    assert ids(read(tmp_path / ".*")) == [".a.txt"]
    (bad,) = read(tmp_path / ".*", by_uri=True)
    assert isinstance(bad, Bad)
    assert (bad.error, bad.fix) == (
        ".a.txt is hidden, and agents read no hidden file",
        "rename it; without --by-uri up to 262144 bytes go into the task",
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"prompt": "Summarize"},
            "--prompt has no {document}; write {document} where the input's text belongs",
        ),
        ({"prompt": ""}, "--prompt is empty"),
        ({"model": ""}, "--model is empty"),
        ({"schema": Path("none.json")}, "--schema none.json cannot be read"),
    ],
)
def test_a_wrong_question_is_a_usage_error_before_anything_is_read(
    tmp_path: Path, more: dict[str, Any], words: str
) -> None:
    """A fault that every task would have is a usage error that names the option.

    It ends the program before anything is read.
    """
    fill(tmp_path, "a.txt")

    with pytest.raises(ConfigError) as refused:
        read_documents(str(tmp_path), **{"prompt": PROMPT} | more)

    assert words in str(refused.value)


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"type": "objekt"}', '{"maximum": 18446744073709551616}']
)
def test_a_wrong_schema_is_a_usage_error(tmp_path: Path, content: str) -> None:
    """A schema that is no JSON object or no JSON Schema, or would lose digits, is a usage error.

    The error names the option.
    """
    fill(tmp_path, "a.txt")
    (tmp_path / "schema.json").write_text(content)

    with pytest.raises(ConfigError, match="--schema"):
        read_documents(str(tmp_path), prompt=PROMPT, schema=tmp_path / "schema.json")


@pytest.mark.parametrize("source", ["none", "none/*.txt", "*.txt"])
def test_a_source_without_documents_is_a_usage_error(tmp_path: Path, source: str) -> None:
    """A missing folder and a pattern without matches are usage errors."""
    with pytest.raises(ConfigError, match=r"docs/\*\*/\*\.txt"):
        read_documents(str(tmp_path / source), prompt=PROMPT)


@pytest.mark.parametrize("source", ["n" * 300 + "/docs", "n" * 300 + "/*.txt"])
def test_a_folder_that_cannot_be_looked_at_is_a_usage_error(source: str) -> None:
    """A name that is too long, or in a folder that may not be entered, is a usage error.

    Both used to end with a traceback.
    """
    for use in (lambda: read_documents(source, prompt=PROMPT), lambda: documents_batch(source)):
        with pytest.raises(ConfigError, match="cannot be looked at: File name too long"):
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

    assert isinstance(bad, Bad)
    assert bad.error == f"{tmp_path} cannot be listed: No such file or directory"


@pytest.mark.parametrize("source", ["~nobody-of-this-name/docs", "~nobody-of-this-name"])
def test_the_home_of_a_user_who_is_not_there_is_a_usage_error(source: str) -> None:
    """The home of an unknown user is a usage error, also for the batch named after it.

    It used to end with a traceback.
    """
    for use in (lambda: read_documents(source, prompt=PROMPT), lambda: documents_batch(source)):
        with pytest.raises(
            ConfigError,
            match=rf"^{source} names a user without a home folder; write the whole path",
        ):
            use()


def test_the_batch_is_named_after_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is named after the folder, a glob's fixed part, or the current folder for a dot."""
    fill(tmp_path, "reports/a.txt")
    monkeypatch.chdir(tmp_path / "reports")

    assert {
        documents_batch(source)
        for source in (str(tmp_path / "reports"), f"{tmp_path}/reports/*.txt", ".", "*.txt")
    } == {"reports"}
