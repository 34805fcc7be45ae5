"""Turns objects in a store into task lines: `docllm load --documents s3://BUCKET/PREFIX/`.

The store's listing has all that a line needs: name, size and etag. No object is read here.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

from docllm.producer.input.documents import task_line, with_document
from docllm.producer.input.excluded_files import is_hidden
from docllm.producer.input.file_tree import WILD, matches_pattern, require_whole_depths
from docllm.producer.input.lines import InvalidLine, ValidLine, read_line
from docllm.schemas.documents.limits import MAX_DOCUMENT_BYTES
from docllm.schemas.errors import ConfigError, DocllmError, UnreachableError
from docllm.schemas.objects.address import ObjectAddress, is_object_uri
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.objects.store import ObjectEntry, ObjectStores
from docllm.schemas.text.document_text import blank_problem

_BUCKET_END = 3  # parts of a URI before its key
_FORM = "write s3://BUCKET/PREFIX/ (or gs://, az://), or a pattern, as in 's3://BUCKET/**/*.txt'"


@dataclass(frozen=True, slots=True)
class ObjectTree:
    """A prefix in a bucket, and the pattern that the names below it must match, part by part."""

    prefix: str
    pattern: tuple[str, ...]

    @classmethod
    def of(cls, source: str) -> Self:
        """Return the tree that a URI means, which may hold a pattern. Raises ConfigError."""
        parts = source.split("/")
        wild = (
            number
            for number, part in enumerate(parts)
            if number >= _BUCKET_END and any(char in part for char in WILD)
        )
        end = next(wild, len(parts))
        prefix = "/".join([*parts[:end], ""]) if end < len(parts) else source
        try:
            ObjectAddress.of(prefix)
        except ValueError as error:
            raise ConfigError(f"--documents: {error}; {_FORM}") from None
        require_whole_depths(tuple(parts[end:]))
        return cls(prefix, tuple(parts[end:]))

    @property
    def name(self) -> str:
        """The last part of the prefix, else the bucket."""
        address = ObjectAddress.of(self.prefix)
        return address.key.rstrip("/").rpartition("/")[2] or address.bucket

    def entries(self, stores: ObjectStores) -> Iterator[ObjectEntry]:
        """Yield the objects that match, without hidden ones. Raises ObjectError."""
        for entry in stores.entries(self.prefix):
            parts = tuple(entry.name.split("/"))
            if matches_pattern(parts, self.pattern) if self.pattern else not is_hidden(parts):
                yield entry


def read_objects(
    source: str, question: dict[str, Any], stores: ObjectStores | None = None
) -> Generator[ValidLine | InvalidLine, None, None]:
    """Return the tasks of the objects below a prefix, in the store's order.

    A page of the listing is in memory. Each task names the URI, size and etag of its object.

    Raises ConfigError at once for a prompt without {document}, for an invalid schema, and when
    there is no object; and ConfigError or UnreachableError when the objects cannot be listed.
    """
    entries = ObjectTree.of(source).entries(ObjectStores() if stores is None else stores)
    try:
        first_entry = next(entries, None)
    except ObjectError as error:
        raise _cannot_list(error) from None
    if first_entry is None:
        raise ConfigError(f"no object matches {source}; {_FORM}")
    return _lines(chain([first_entry], entries), question, source)


def objects_batch(source: str) -> str:
    """Return the default batch for objects: the last part of their prefix."""
    return ObjectTree.of(source).name


def _lines(
    entries: Iterator[ObjectEntry], question: dict[str, Any], source: str
) -> Generator[ValidLine | InvalidLine, None, None]:
    number = 0
    try:
        for entry in entries:
            number += 1
            yield _read(number, entry, question)
    except ObjectError as error:
        fix = "load again; what is loaded already is recognized"
        yield InvalidLine(
            number + 1, "", f"cannot be listed to the end: {error}", fix, None, source
        )


def _read(number: int, entry: ObjectEntry, question: dict[str, Any]) -> ValidLine | InvalidLine:
    problem, fix = "", ""
    if not entry.size:
        problem, fix = blank_problem(""), "remove the object, or leave it out with a pattern"
    elif entry.size > MAX_DOCUMENT_BYTES:
        problem = f"is {entry.size} bytes long"
        fix = f"split it into parts of at most {MAX_DOCUMENT_BYTES} bytes"
    elif not is_readable(entry.uri):
        problem = "has a name that agents do not read"
        fix = "rename it: no part of a name is . or .., or holds an encoded slash or backslash"
    if problem:
        return InvalidLine(number, "", problem, fix, None, entry.name)
    source: dict[str, Any] = {"uri": entry.uri, "size": entry.size}
    if entry.etag is not None:
        source["etag"] = entry.etag
    return with_document(read_line(number, task_line(entry.name, question, source)), entry.name)


def is_readable(uri: str) -> bool:
    """Return whether the URI of a listed object names this object for agents too."""
    try:
        return is_object_uri(uri) and ObjectAddress.of(uri).uri == uri
    except ValueError:
        return False


def _cannot_list(error: ObjectError) -> DocllmError:
    if error.fault is ObjectFault.OUTAGE:
        return UnreachableError(f"--documents: {error}")
    return ConfigError(f"--documents: {error}")
