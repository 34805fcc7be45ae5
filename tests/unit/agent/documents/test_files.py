"""Files by URI: which are read, and which are refused."""

import asyncio
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from docllm.agent.documents import files
from docllm.agent.documents.files import _open_below
from docllm.agent.documents.reader import Documents
from docllm.agent.handlers import DocumentError
from docllm.agent.handlers.documents import Expected
from tests.support.documents import file_documents

TEXT = "Umsatz stieg um 3 %. \u00c4u\u00dferst gut."

ANY = Expected()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a root with a document, beside a folder that is not allowed."""
    folder = tmp_path / "root" / "year 1"
    folder.mkdir(parents=True)
    (folder / "r\u00e9port.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "outside.txt").write_text("secret", encoding="utf-8")
    return tmp_path / "root"


def read(root: Path, path: Path | str, **expected: Any) -> str:
    uri = path if isinstance(path, str) else path.as_uri()
    return asyncio.run(file_documents(root, max_bytes=1000).read(uri, Expected(**expected))).text


def refused(root: Path, path: Path | str, **expected: Any) -> str:
    with pytest.raises(DocumentError) as error:
        read(root, path, **expected)
    return error.value.failure.error_class


def test_a_document_below_its_root(root: Path) -> None:
    """A percent-encoded file URI below a root is read, with the expected size and hash."""
    path, raw = root / "year 1" / "r\u00e9port.txt", TEXT.encode()

    assert read(root, path, size=len(raw), sha256=hashlib.sha256(raw).hexdigest()) == TEXT


@pytest.mark.parametrize("expected", [{"size": 3}, {"sha256": "0" * 64}])
def test_a_changed_document(root: Path, expected: dict[str, Any]) -> None:
    """A document of another size or hash than was loaded is not the task's document."""
    assert refused(root, root / "year 1" / "r\u00e9port.txt", **expected) == "DOCUMENT_CHANGED"


def test_a_document_outside_the_roots_is_refused(root: Path) -> None:
    """Neither a path, nor dots, nor a link leads out of the root."""
    outside = root.parent / "outside.txt"
    (root / "link.txt").symlink_to(outside)
    (root / "folder").symlink_to(root.parent)
    (root.parent / "root-2").mkdir()
    (root.parent / "root-2" / "x").write_text("x", encoding="utf-8")

    tried: list[Path | str] = [
        outside,
        f"{root.as_uri()}/../outside.txt",
        f"{root.as_uri()}/%2e%2e/outside.txt",
        root / "link.txt",
        root / "folder" / "outside.txt",
    ]

    assert [refused(root, path) for path in [*tried, root.parent / "root-2" / "x", root]] == [
        "DOCUMENT_REFUSED"
    ] * 7


@pytest.mark.parametrize(
    "name",
    [
        "docllm.toml",
        "in/docllm.toml",
        "docllm.toml~",
        "docllm.toml.bak",
        "docllm-prod.toml",
        "docllm.prod.toml.orig",
        "mine.toml",
        "docllm-data/ledger.sqlite",
        "t.rejects.jsonl",
        ".env",
        ".git/config",
        "in/.x/a",
    ],
)
def test_hidden_files_and_docllms_own_are_refused_below_every_root(root: Path, name: str) -> None:
    """Hidden files and docllm's own are refused below every root.

    A foreign line used to name docllm.toml as its document, and the provider would have got the
    key.
    """
    path = root / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("api_key = 'secret'", encoding="utf-8")
    (root / "link.txt").symlink_to(path)
    documents = file_documents(root.parent, root, own=[root / "mine.toml", root / "docllm-data"])

    for tried in (path, root / "link.txt", f"{root.as_uri()}/in/../{name}"):
        with pytest.raises(
            DocumentError,
            match="is hidden, or belongs to docllm or the system, so no agent reads it",
        ) as error:
            asyncio.run(documents.read(tried if isinstance(tried, str) else tried.as_uri(), ANY))
        assert error.value.failure.error_class == "DOCUMENT_REFUSED"


def _forms(path: str) -> list[str]:
    """Return other ways to write a path in a URI."""
    whole = "".join(f"%{byte:02X}" for byte in path.encode())
    return [
        f"file:///{whole[3:]}",
        f"file://localhost{path}",
        f"FILE://LOCALHOST{path}",
        f"file:{path}",
        f"file:////{path}",
        f"file://{path.replace('/', '//')}",
        f"file://{path.replace('/', '/./')}",
        f"file://{path.replace('.', '%2e')}",
        f"file:///none/..{path}",
        f"file:///proc/self/root{path}",
        f"file:///dev/fd/../root{path}",
    ]


def test_no_form_of_a_uri_leads_to_an_excluded_file(root: Path) -> None:
    """Below the root `/`, no way to write a path leads to an excluded file."""
    names = (".env", "docllm.toml", "mine.toml", "x.rejects.jsonl", "data/ledger.sqlite", ".ssh/id")
    documents = file_documents(Path("/"), own=[root / "mine.toml", root / "data"])
    (root / "year 1" / "a.txt").write_text("text", encoding="utf-8")
    tried = []
    for name in names:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("api_key = 'secret'", encoding="utf-8")
        tried += _forms(str(root / name))
    for name in ("environ", "cmdline", "maps"):
        tried += _forms(f"/proc/self/{name}")
    tried += ["file:///proc/thread-self/environ", "file:///sys/kernel/uevent_seqnum"]
    tried += [f"file:///proc/{os.getpid()}/environ", "file:///dev/zero", "file:///dev/shm/none"]

    assert [uri for uri in tried if _class_of(documents, uri) != "DOCUMENT_REFUSED"] == []
    assert asyncio.run(documents.read((root / "year 1" / "a.txt").as_uri(), ANY)) == ("text", ())


def _class_of(documents: Documents, uri: str) -> str:
    """Return the error class of a document, "" if it is read."""
    try:
        asyncio.run(documents.read(uri, ANY))
    except DocumentError as error:
        return error.failure.error_class
    return ""


def test_a_hard_link_to_a_file_of_docllms_own_is_refused(root: Path, tmp_path: Path) -> None:
    """Its path is that of a document; a link to any other file of the agent's user is read."""
    own, other = tmp_path / "data" / "in" / "ledger.sqlite", tmp_path / "outside.txt"
    own.parent.mkdir(parents=True)
    own.write_text("api_key = 'secret'", encoding="utf-8")
    (root / "a.txt").hardlink_to(own)
    (root / "b.txt").hardlink_to(other)

    for path in (tmp_path / "data", own):
        documents = file_documents(root, own=[path, tmp_path / "gone"])
        assert _class_of(documents, (root / "a.txt").as_uri()) == "DOCUMENT_REFUSED"
        assert asyncio.run(documents.read((root / "b.txt").as_uri(), ANY)).text == "secret"


def test_a_hard_link_to_a_file_of_another_user_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent may read files which the one who linked them may not; a file with one name is read.

    Whoever owns the root may link files in it.
    """
    link, single = root / "a.txt", root / "year 1" / "r\u00e9port.txt"
    link.hardlink_to(root.parent / "outside.txt")
    documents = file_documents(root)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert asyncio.run(documents.read(link.as_uri(), ANY)).text == "secret"

    monkeypatch.setattr(files, "_owner", lambda _root: os.getuid() + 2)

    assert _class_of(documents, link.as_uri()) == "DOCUMENT_REFUSED"
    assert asyncio.run(documents.read(single.as_uri(), ANY)).text == TEXT


def test_a_root_may_lie_in_a_folder_of_the_system() -> None:
    """Somebody who names a root in a folder of the system, such as /dev/shm, wants its files."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        (folder / "a.txt").write_text(TEXT, encoding="utf-8")

        assert read(folder, folder / "a.txt") == TEXT
        assert refused(Path("/"), folder / "a.txt") == "DOCUMENT_REFUSED"
    finally:
        shutil.rmtree(folder)


def test_a_root_may_lie_in_a_hidden_folder(tmp_path: Path) -> None:
    """A hidden folder may be a root if somebody names it; hidden files below it are not read."""
    root = tmp_path / ".cache" / "texts"
    root.mkdir(parents=True)
    (root / "a.txt").write_text(TEXT, encoding="utf-8")

    assert read(root, root / "a.txt") == TEXT
    assert refused(tmp_path, root / "a.txt") == "DOCUMENT_REFUSED"


def test_a_refusal_names_no_root(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A refusal names no root, because others read dead letters; the log names the roots once."""
    documents = file_documents(root)

    for _ in range(2):
        with pytest.raises(DocumentError) as error:
            asyncio.run(documents.read("file:///etc/hostname", ANY))

    assert str(root) not in error.value.failure.text
    assert (
        "file:///etc/hostname is not below an allowed root; set DOCLLM_DOCUMENT_ROOTS"
        in error.value.failure.text
    )
    assert caplog.messages == [f"a document is not below an allowed root; allowed are: {root}"]


def test_a_link_within_the_root_is_followed(root: Path) -> None:
    """A link that stays below the root is followed, and a root may itself be a link."""
    (root / "latest.txt").symlink_to(root / "year 1" / "r\u00e9port.txt")
    (root.parent / "alias").symlink_to(root)

    assert read(root.parent / "alias", root.parent / "alias" / "latest.txt") == TEXT


def test_a_link_that_appears_after_the_check_leads_nowhere(root: Path) -> None:
    """The walk from the root follows no link, neither to a folder nor to a file."""
    (root / "link.txt").symlink_to(root.parent / "outside.txt")
    (root / "folder").symlink_to(root.parent)

    for parts in [("link.txt",), ("folder", "outside.txt")]:
        with pytest.raises(OSError, match=r"Errno"):
            _open_below(root, parts)


def test_a_document_that_is_no_regular_file_is_refused(root: Path) -> None:
    """A pipe without a writer does not block the thread; a folder is no document."""
    os.mkfifo(root / "pipe")

    assert refused(root, root / "pipe") == "DOCUMENT_REFUSED"
    assert refused(root, root / "year 1") == "DOCUMENT_REFUSED"


def test_a_document_that_is_too_large_or_no_text_is_refused(root: Path) -> None:
    """A document above the limit, or one that is no text, is refused."""
    (root / "large").write_bytes(b"x" * 1001)
    (root / "image").write_bytes(b"\x89PNG\r\n\x1a\n")
    (root / "edge").write_bytes(b"x" * 1000)

    assert refused(root, root / "large") == "DOCUMENT_REFUSED"
    assert refused(root, root / "image") == "DOCUMENT_REFUSED"
    assert len(read(root, root / "edge")) == 1000


def test_a_document_is_the_same_text_as_one_that_is_loaded(root: Path) -> None:
    """A document has the same text as in a load: no byte order mark, and no zero byte."""
    (root / "marked").write_bytes(b"\xef\xbb\xbftext")
    (root / "zero").write_bytes(b"a\0b")

    assert read(root, root / "marked", size=7) == "text"
    assert refused(root, root / "zero") == "DOCUMENT_REFUSED"


@pytest.mark.parametrize("end", ["?x", "#x", "?", "#"])
def test_a_uri_with_more_than_a_path_is_refused(root: Path, end: str) -> None:
    """A URI with a query or fragment is ambiguous and refused; such letters must be escaped."""
    (root / f"a{end}").write_text("escaped", encoding="utf-8")
    (root / "a").write_text("plain", encoding="utf-8")

    assert refused(root, f"{(root / 'a').as_uri()}{end}") == "DOCUMENT_REFUSED"
    assert read(root, root / f"a{end}") == "escaped"


def test_a_document_that_is_unreadable_now_may_be_readable_later(root: Path) -> None:
    """A document that cannot be read now may be readable later, if a share is not mounted."""
    assert refused(root, root / "missing.txt") == "DOCUMENT_UNREADABLE"


@pytest.mark.parametrize(
    "uri",
    [
        "http://h/a.txt",
        "https://h/a",
        "ftp://h/a",
        "a.txt",
        "file://server/a",
        "file:a.txt",
        "file:///a%00b",
        "file://[/a",
        "",
    ],
)
def test_nothing_is_fetched(root: Path, uri: str) -> None:
    """Only files of this machine by their whole path are documents."""
    assert refused(root, uri) == "DOCUMENT_REFUSED"


def test_handles_are_closed(root: Path) -> None:
    """Refusals and errors leave no handle open."""
    before = len(list(Path("/proc/self/fd").iterdir()))

    for name in ("missing.txt", "year 1", "year 1/none/none"):
        refused(root, root / name)

    assert len(list(Path("/proc/self/fd").iterdir())) == before
