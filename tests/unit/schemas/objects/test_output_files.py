"""Results as files: written once, whole, below their root."""

import os
from pathlib import Path

import pytest

from docllm.schemas.objects import output_stores as files
from docllm.schemas.objects.errors import ObjectError, ObjectFault


def fault(call: str, *arguments: object, **options: object) -> ObjectFault:
    with pytest.raises(ObjectError) as caught:
        getattr(files, call)(*arguments, **options)
    return caught.value.fault


def test_a_file_is_written_once_and_read_back(tmp_path: Path) -> None:
    """Folders between the root and the file are made; nothing is overwritten."""
    root = f"file://{tmp_path}/"
    uri = f"{root}a/b%20c/x.json"

    files.put_new_file(uri, b"first", root=root)

    assert (tmp_path / "a" / "b c" / "x.json").read_bytes() == b"first"
    assert files.get_file(uri, limit=5) == b"first"
    assert files.file_sizes(f"{root}a/b%20c/") == {"x.json": 5}
    assert files.file_sizes(root) == {}
    assert fault("put_new_file", uri, b"other", root=root) is ObjectFault.EXISTS
    assert fault("get_file", uri, limit=4) is ObjectFault.TOO_LARGE
    assert fault("get_file", f"{root}gone.json", limit=4) is ObjectFault.MISSING
    assert fault("file_sizes", f"{root}gone/") is ObjectFault.MISSING


@pytest.mark.parametrize(
    ("of_root", "of_folder", "of_file"),
    [
        (0o755, 0o700, 0o600),
        (0o1777, 0o770, 0o660),
        (0o775, 0o770, 0o660),
        (0o777, 0o777, 0o666),
        (0o711, 0o700, 0o600),
    ],
)
def test_who_may_not_write_to_the_root_reads_no_result(
    tmp_path: Path, of_root: int, of_folder: int, of_file: int
) -> None:
    """A result has a whole answer; most roots may be read by every user of the machine."""
    tmp_path.chmod(of_root)
    root = f"file://{tmp_path}/"
    umask = os.umask(0)
    try:
        files.put_new_file(f"{root}a/x.json", b"x", root=root)
    finally:
        os.umask(umask)

    assert (tmp_path / "a").stat().st_mode & 0o777 == of_folder
    assert (tmp_path / "a/x.json").stat().st_mode & 0o777 == of_file


def test_no_link_leads_out_of_the_root(tmp_path: Path) -> None:
    """A folder or a file that is a link is refused, also if it is put there later."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (inside / "folder").symlink_to(outside)
    (inside / "file.json").symlink_to(outside / "new.json")
    root = f"file://{inside}/"

    for name in ("folder/x.json", "file.json"):
        assert fault("put_new_file", f"{root}{name}", b"x", root=root)
    assert fault("put_new_file", f"{root}../out/x.json", b"x", root=root) is ObjectFault.WRONG_NAME
    assert not any(outside.iterdir())


def test_a_root_that_is_missing_is_not_made(tmp_path: Path) -> None:
    """A disk that is not mounted must not be taken for an empty folder."""
    root = f"file://{tmp_path}/mount/"
    assert fault("put_new_file", f"{root}x.json", b"x", root=root) is ObjectFault.MISSING
    assert not (tmp_path / "mount").exists()


def test_half_a_file_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk leaves no file that would keep its name from the next try."""
    root = f"file://{tmp_path}/"

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert fault("put_new_file", f"{root}x.json", b"x", root=root) is ObjectFault.OUTAGE
    assert not any(tmp_path.iterdir())
    files.put_new_file(f"{root}x.json", b"x", root=root)


def test_a_file_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads it sees the old or the new one, and a failure leaves the old one alone."""
    root = f"file://{tmp_path}/"
    uri = f"{root}a/x.json"
    files.put_file(uri, b"first", root=root)
    files.put_file(uri, b"second", root=root)
    assert files.get_file(uri, limit=9) == b"second"

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", fail)
    assert fault("put_file", uri, b"third", root=root) is ObjectFault.OUTAGE
    assert files.get_file(uri, limit=9) == b"second"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["x.json"]
