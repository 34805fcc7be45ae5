"""Packed inputs are unpacked by their content; other files are named for what they are."""

import bz2
import gzip
import io
import lzma
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import nullcontext

import pyarrow as pa
import pytest

from docllm.producer.input import packed as packings
from docllm.producer.input.lines import InvalidLine, ValidLine, read_lines
from docllm.producer.input.other_files import NoLinesError

LINES = b"".join(b'{"id": "t%d", "prompt": "caf\xc3\xa9"}\n' % number for number in range(300))
KEYS = [f"t{number}" for number in range(300)]


def read(content: bytes, *, seekable: bool = True) -> list[ValidLine | InvalidLine]:
    raw = io.BytesIO(content)
    if not seekable:
        raw.seekable = lambda: False  # type: ignore[method-assign]
    return list(read_lines("-", stdin=io.BufferedReader(raw)))


def keys(lines: list[ValidLine | InvalidLine]) -> list[str]:
    return [line.key for line in lines if isinstance(line, ValidLine)]


def refusal(lines: list[ValidLine | InvalidLine]) -> str:
    (line,) = lines
    assert isinstance(line, InvalidLine)
    return str(line)


def zipped(*files: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return packed.getvalue()


def lzma_alone(content: bytes) -> bytes:
    return lzma.compress(content, format=lzma.FORMAT_ALONE)


def utf_16(content: bytes) -> bytes:
    return content.decode().encode("utf-16")


def utf_16_be(content: bytes) -> bytes:
    return b"\xfe\xff" + content.decode().encode("utf-16-be")


def utf_32(content: bytes) -> bytes:
    return content.decode().encode("utf-32")


def zstandard(content: bytes) -> bytes:
    return bytes(pa.compress(content, codec="zstd", asbytes=True))


def two_frames(content: bytes) -> bytes:
    return b"\x51*M\x18\4\0\0\0abcd" + zstandard(content[:99]) + zstandard(content[99:])


def zip_of_one(content: bytes) -> bytes:
    return zipped(("d/", b""), ("d/t.jsonl", content), ("__MACOSX/d/._t.jsonl", b"\0"))


def bzip2_in_zip(content: bytes) -> bytes:
    return zipped(("t.jsonl", content), method=zipfile.ZIP_BZIP2)


def utf_16_in_gzip_in_zip(content: bytes) -> bytes:
    return zip_of_one(gzip.compress(utf_16(content)))


@pytest.mark.parametrize(
    "pack",
    [
        bz2.compress,
        lzma.compress,
        lzma_alone,
        zstandard,
        two_frames,
        zip_of_one,
        bzip2_in_zip,
        utf_16,
        utf_16_be,
        utf_32,
        utf_16_in_gzip_in_zip,
    ],
)
@pytest.mark.parametrize("seekable", [True, False], ids=["file", "pipe"])
def test_a_packed_input_is_read(pack: Callable[[bytes], bytes], *, seekable: bool) -> None:
    """From a file and from a pipe, the lines are those of the content."""
    lines = read(pack(LINES), seekable=seekable)

    assert keys(lines) == KEYS
    first = lines[0]
    assert isinstance(first, ValidLine)
    assert first.value == LINES.splitlines()[0]


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress])
def test_joined_and_padded_streams_are_one_input(pack: Callable[[bytes], bytes]) -> None:
    """`cat a.xz b.xz` is a packed file, and tapes pad with zeros."""
    half = LINES.index(b"\n", len(LINES) // 2) + 1

    packed = pack(LINES[:half]) + bytes(8) + pack(LINES[half:]) + bytes(512)

    assert keys(read(packed)) == KEYS


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress, utf_16])
def test_a_cut_input_ends_with_one_bad_line(pack: Callable[[bytes], bytes]) -> None:
    """What is missing is reported in one line, whatever is before it."""
    *before, last = read(pack(LINES)[:-3])

    assert len(keys(before)) == len(before)
    assert isinstance(last, InvalidLine)
    assert last.error.startswith("cannot be read, and neither can the rest")


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress, zip_of_one])
def test_a_packed_bomb_does_not_fill_the_memory(pack: Callable[[bytes], bytes]) -> None:
    """A line of 50 MB from some kilobytes is refused as any other line of that size."""
    bomb = pack(b"x" * 50_000_000)

    tracemalloc.start()
    lines = read(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert "is 50000000 bytes long" in refusal(lines)
    assert peak < 20_000_000


@pytest.mark.parametrize(
    ("bomb", "words"),
    [
        (b"x" * 80_000_000 + b"\n" + LINES, "it has a line of more than 64 MiB"),
        (b"\n" * 3_000_000, "it has more than 1 MiB of blank lines"),
        (b"  \r\n" * 1_000_000, "it has more than 1 MiB of blank lines"),
        (LINES + b"\n" * 3_000_000, "it has more than 1 MiB of blank lines"),
    ],
)
def test_an_input_that_goes_on_without_lines_is_not_read_to_its_end(
    bomb: bytes, words: str
) -> None:
    """Some kilobytes may unpack to any number of gigabytes; what is before them is loaded."""
    packed = gzip.compress(bomb, 1)
    file = io.BufferedReader(io.BytesIO(packed))

    lines: list[ValidLine | InvalidLine] = []
    with pytest.raises(NoLinesError, match=words) if bomb[:1] != b"{" else nullcontext():
        lines.extend(read_lines("-", stdin=file))

    assert keys(lines) == (KEYS if lines else [])
    assert not lines or words in str(lines[-1])


def test_blank_lines_between_tasks_are_no_bomb() -> None:
    """However many there are, if they are not the most."""
    blank = b" " * 9_000 + b"\r\n"

    assert keys(read(LINES.replace(b"\n", b"\n" + blank))) == KEYS


def tar_of_one() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("t.jsonl"), io.BytesIO())
    return packed.getvalue() + LINES


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"(\xb5/\xfd\x04\x00" + b"\n\x80" * 9, "cannot be read: ZSTD decompress failed"),
        (b"7z\xbc\xaf'\x1c\0\4" + b"\n" * 9, "is a 7-Zip archive; unpack it first: 7z"),
        (tar_of_one(), "is a tar archive; unpack it first: tar"),
        (gzip.compress(tar_of_one()), "is a tar archive; unpack it first: tar"),
        (b"\x51*M\x18\4\0\0\0abcd(\xb5/\xfd", "cannot be read: Truncated compressed stream"),
        (b"\x04\x22M\x18d@", "is an LZ4 archive; unpack it first: lz4 -dc FILE"),
        (b"\x1f\x9d\x90\0\1", "is an archive of compress (.Z); unpack it first: gzip -dc FILE"),
        (b"LZIP\1\f", "is an lzip archive"),
        (b"{\\rtf1\\ansi\n{\\fonttbl}\n", "is an RTF document; load documents with --documents"),
        (b"PAR1\x15\0\x15", "is a table (Parquet); for a table, name its columns: --map"),
        (b"%PDF-1.7\n%\xe2\xe3\n", "is a PDF document; load documents with --documents"),
        (b"\0\1\2\3\n" * 9, "is not text"),
        (LINES.decode().encode("utf-16-le"), "is UTF-16LE without a byte order mark; convert"),
        (LINES.decode().encode("utf-32-be"), "is UTF-32BE without a byte order mark; convert"),
        (zipped(("a", LINES), ("b", LINES)), "is a zip archive of 2 files"),
        (zipped(), "is a zip archive of 0 files"),
        (zipped(("a", LINES))[:-3], "cannot be read: File is not a zip file; repair the file"),
        (zipped(("[Content_Types].xml", b""), ("xl/workbook.xml", b"")), "is an Office document"),
        (zipped(("t", LINES), method=zipfile.ZIP_LZMA), "packed by a rare method"),
    ],
)
def test_a_file_of_another_kind_is_named_once(content: bytes, words: str) -> None:
    """A person learns what the file is, instead of one error for each byte 0x0A."""
    with pytest.raises(NoLinesError) as refused:
        read(content)

    assert words in f"{refused.value.error}; {refused.value.fix}"


@pytest.mark.parametrize("beginning", [b"(\xb5/\xfd\x04", b"\x51*M\x18\4\0\0\0abcd(\xb5/\xfd"])
def test_zstandard_needs_an_extra(beginning: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a person learns both ways."""
    monkeypatch.setattr(packings, "has_arrow", lambda: False)
    with pytest.raises(NoLinesError) as refused:
        read(beginning)

    assert refused.value.error == "the file is a Zstandard archive"
    assert refused.value.fix == (
        "unpack it first: zstd -dc FILE | docllm load -, or let docllm do it: "
        "pip install '.[archive]' in the clone of docllm"
    )


def test_a_byte_order_mark_within_a_file_is_no_content() -> None:
    """`cat` of two files with a byte order mark has one in its middle."""
    lines = read(b"\xef\xbb\xbf" + LINES + b'\xef\xbb\xbf{"id": "last", "prompt": "x"}\n')

    assert keys(lines) == [*KEYS, "last"]
    last = lines[-1]
    assert isinstance(last, ValidLine)
    assert last.value.startswith(b"{")


def test_damaged_lines_do_not_spoil_the_others() -> None:
    """Zeros in a text, as after a loss of power, are bad lines among good ones."""
    for content in (LINES + bytes(512), bytes(9) + b"\n" + LINES):
        lines = read(content)

        assert keys(lines) == KEYS
        assert len(lines) == len(KEYS) + 1


def test_half_a_surrogate_in_utf_16_spoils_its_line() -> None:
    """The lines around it are read."""
    lines = read(
        utf_16(b'{"id": "a", "prompt": "x"}\n')
        + b"\x3d\xd8\x0a\0"
        + LINES.decode().encode("utf-16-le")
    )

    assert keys(lines) == ["a", *KEYS]
    assert len(lines) == len(KEYS) + 2
