"""Files that are never documents: hidden ones, and docllm's own."""

from pathlib import Path

from docllm.producer.input.lines import InvalidLine
from tests.unit.producer.input.test_documents import fill, ids, read


def test_files_of_docllm_are_left_out(tmp_path: Path) -> None:
    """Data folder, configuration and rejects inside a tree are no documents.

    The key in a file used to go to the provider in a prompt.
    """
    fill(
        tmp_path,
        "a.txt",
        "docllm-data/ledger.sqlite",
        "b.rejects.jsonl",
        "docllm.toml",
        "docllm.toml~",
        "docllm-old.toml.bak",
        "#docllm.toml#",
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

    assert isinstance(bad, InvalidLine)
    assert (bad.document, bad.error) == ("a.txt", "is a link to a file of docllm's own")
    assert ids([good]) == ["z.txt"]


def test_a_hard_link_to_a_file_of_docllms_own_is_a_bad_document(tmp_path: Path) -> None:
    """Another name of the settings or of a file in the data folder does not make it a document."""
    own, tree = tmp_path / "own", tmp_path / "tree"
    fill(own, "data/ledger.sqlite", "my.toml", "else.txt")
    tree.mkdir()
    for name in ("data/ledger.sqlite", "my.toml", "else.txt"):
        (tree / Path(name).name).hardlink_to(own / name)

    good, *bad = read(tree, leave_out=[own / "data", own / "my.toml", own / "gone"])

    assert ids([good]) == ["else.txt"]
    assert [f"{line.document} {line.error}" for line in bad if isinstance(line, InvalidLine)] == [
        "ledger.sqlite is a link to a file of docllm's own",
        "my.toml is a link to a file of docllm's own",
    ]


def test_a_hidden_document_goes_into_its_task_or_is_bad(tmp_path: Path) -> None:
    """A hidden document that a glob names is put into its task, or is bad if it is too large.

    No agent reads a hidden file, so a task that names it by URI would be dead.
    """
    fill(tmp_path, ".a.txt")

    assert ids(read(tmp_path / ".*")) == [".a.txt"]
    (bad,) = read(tmp_path / ".*", by_uri=True)
    assert isinstance(bad, InvalidLine)
    assert (f"{bad.document} {bad.error}", bad.fix) == (
        ".a.txt is hidden, and agents read no hidden file",
        "rename it; without --by-uri up to 262144 bytes go into the task",
    )
