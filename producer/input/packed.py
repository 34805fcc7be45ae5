"""Unpacks an input: its packing and its encoding are recognized by its first bytes, not its name.

Whatever an input unpacks to, it is read part by part, so a small file cannot fill the memory.
"""

import bz2
import codecs
import gzip
import io
import lzma
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import IO, Any, cast

from docllm.producer.arrow import arrow, has_arrow
from docllm.producer.input.other_files import NoLinesError, refuse_other
from docllm.schemas.documents.kind import bom_encoding

BUFFER_BYTES = 1 << 20
_PART_BYTES = 1 << 16
_HEAD_BYTES = 4096
_MAX_LAYERS = 4  # such as UTF-16 in gzip in zip
_XZ_MEMORY_BYTES = 128 << 20  # `xz -9` needs 65 MiB
_READ_OF_ZIP = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2}
_PACKED = (b"PK\3\4", b"PK\5\6", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x5d\0\0")
_ZSTANDARD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
# What an operating system adds to an archive.
_ADDED = ("__MACOSX/", ".DS_Store", "Thumbs.db")

DAMAGED = (OSError, EOFError, UnicodeDecodeError, lzma.LZMAError, zipfile.BadZipFile)


@contextmanager
def as_text(file: IO[bytes], refuse: Callable[[bytes], None] = refuse_other) -> Iterator[IO[bytes]]:
    """Yield the text of a file in UTF-8, unpacked if it is packed.

    `refuse` raises NoLinesError if the file begins as one that has nothing to load. Reading raises
    an error of DAMAGED, or zlib's, behind all data before the damage.
    """
    with ExitStack() as opened:
        stream = file
        for _ in range(_MAX_LAYERS):
            head = beginning_of(stream)
            parts = _content(stream, head, opened)
            if parts is None:
                refuse(head)
                break
            stream = opened.enter_context(io.BufferedReader(_PartStream(parts), BUFFER_BYTES))
        yield stream


def beginning_of(stream: IO[bytes]) -> bytes:
    """Return the first bytes without consuming them, because a pipe cannot seek back."""
    return stream.peek(_HEAD_BYTES)[:BUFFER_BYTES] if isinstance(stream, io.BufferedReader) else b""


def _content(stream: IO[bytes], head: bytes, opened: ExitStack) -> Iterator[bytes] | None:
    """Return the content of a stream in parts, None if its bytes are the content."""
    read: Callable[[int], bytes]
    encoding = bom_encoding(head)
    if encoding in {"utf-16", "utf-32"}:
        return _recoded(stream, encoding)
    if head.startswith(b"BZh") and head[4:10] in {b"1AY&SY", b"\x17rE8P\x90"}:
        return _joined(stream, bz2.BZ2Decompressor)
    if head.startswith((b"\xfd7zXZ\0", b"\x5d\0\0")):
        return _joined(stream, partial(lzma.LZMADecompressor, memlimit=_XZ_MEMORY_BYTES))
    if head.startswith((b"PK\3\4", b"PK\5\6")):
        read = _of_zip(stream, opened).read1
    elif head.startswith(b"\x1f\x8b"):
        read = opened.enter_context(gzip.GzipFile(fileobj=stream)).read1
    elif _ZSTANDARD.match(head) and has_arrow():
        library, _ = arrow("Zstandard")
        read = library.CompressedInputStream(library.PythonFile(stream), "zstd").read
    else:
        return None
    return iter(partial(read, BUFFER_BYTES), b"")


def is_packed(head: bytes) -> bool:
    """Return whether a file that begins so is packed."""
    return head.startswith(_PACKED) or _ZSTANDARD.match(head) is not None


class _PartStream(io.RawIOBase):
    """A stream made of parts. A buffer reads it, so that a line does not cost a Python call."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._left = self._left or memoryview(next(self._parts, b""))
        part, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def _joined(
    file: IO[bytes], make: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]
) -> Iterator[bytes]:
    """Unpack streams one behind the other, as `cat a.xz b.xz` writes them, padded or not."""
    packed = file.read(_PART_BYTES)
    while packed:
        decompressor = make()
        while not decompressor.eof:
            if part := decompressor.decompress(packed, BUFFER_BYTES):
                yield part
            packed = b""
            if decompressor.needs_input and not (packed := file.read(_PART_BYTES)):
                raise EOFError("it ends in the middle of a packed stream")
        packed = decompressor.unused_data
        while not (packed := packed.lstrip(b"\0")) and (packed := file.read(_PART_BYTES)):
            pass


def _recoded(file: IO[bytes], encoding: str) -> Iterator[bytes]:
    """Yield a text in UTF-16 or UTF-32 as UTF-8.

    Half a surrogate pair stays one, so that only its line is refused.
    """
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
    raw = b"."
    while raw:
        raw = file.read(_PART_BYTES)
        if part := decoder.decode(raw, not raw):
            yield part.encode("utf-8", "surrogatepass")


def seekable(stream: IO[bytes], opened: ExitStack) -> IO[bytes]:
    """Return a stream that can be read from its end; a pipe is copied to a temporary file."""
    if stream.seekable():
        return stream
    copied: IO[bytes] = opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    shutil.copyfileobj(stream, copied)
    return copied


def _of_zip(stream: IO[bytes], opened: ExitStack) -> zipfile.ZipExtFile:
    """Return the only file of a zip archive."""
    # The list of files is at the end.
    archive = opened.enter_context(zipfile.ZipFile(seekable(stream, opened)))
    names = [name for name in archive.namelist() if not name.endswith(("/", *_ADDED[1:]))]
    names = [name for name in names if not name.startswith(_ADDED[0])]
    if "[Content_Types].xml" in names:
        raise NoLinesError(
            "the file is an Office document",
            fix="load documents with --documents, and save a table as task lines",
        )
    if len(names) != 1:
        raise NoLinesError(
            f"the file is a zip archive of {len(names)} files, and only one can be read",
            fix="unpack it, and load its files one by one: unzip FILE",
        )
    member = archive.getinfo(names[0])
    if member.flag_bits & 1 or member.compress_type not in _READ_OF_ZIP:
        raise NoLinesError(
            "the file is a zip archive with a password, or packed by a rare method",
            fix="unpack it first: unzip FILE",
        )
    return cast("zipfile.ZipExtFile", opened.enter_context(archive.open(member)))
