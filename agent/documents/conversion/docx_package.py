"""The parts of a DOCX file: their sizes, relations and kinds. No part is in memory as a whole."""

import posixpath
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple
from xml.parsers import expat

from docllm.schemas.text.document_text import NoTextError
from docllm.schemas.text.wording import number_of

_MAX_FILES = 10_000
_HEAD_BYTES = 64
_BEFORE_XML = b"\xef\xbb\xbf\xff\xfe\0 \t\r\n"  # byte order marks and blanks, also in UTF-16
_MAX_XML_BYTES = 64 << 20  # unpacked; images and other media are never unpacked
_READ_BYTES = 1 << 16
_DOCUMENT = "word/document.xml"
_BETWEEN = "}"  # a namespace and a name
# Folders without text: of pictures, fonts, programs, and of building blocks that nobody sees yet.
_NO_TEXT = frozenset("media fonts theme docProps _xmlsignatures customUI glossary".split())
# Files without text of their own: what a printer or Windows shows, programs, forms of diagrams.
_NO_TEXT_NAMES = ("thumbnail", "printerSettings", "vbaProject")
_DIAGRAMS, _OF_DIAGRAMS = "diagrams", ("drawing", "layout")
_COMMENTS = "comments"


class Relation(NamedTuple):
    """What a part refers to; `target` is the name of a part, or "" for a place outside the file."""

    kind: str
    target: str


class DocxPackage:
    """An open archive; a part that was given out is no longer among what is left."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        files = archive.infolist()
        self._xml = {file.filename for file in files if _is_xml(archive, file)}
        unpacked = sum(file.file_size for file in files if file.filename in self._xml)
        if len(files) > _MAX_FILES or unpacked > _MAX_XML_BYTES:
            raise NoTextError(
                f"is a DOCX file that unpacks to {len(files)} files with {unpacked} bytes of text; "
                f"at most {_MAX_FILES} files with {_MAX_XML_BYTES} bytes are read"
            )
        self._names = frozenset(file.filename for file in files if not file.is_dir())
        self._left = set(self._names)
        self._relations: dict[str, dict[str, Relation]] = {}
        package = self.relations("").values()
        mains = (found.target for found in package if found.kind == "officeDocument")
        self.main = next(mains, _DOCUMENT)

    def take(self, part: str) -> bool:
        """Return whether a part is there and was not taken before."""
        taken = part in self._left
        self._left.discard(part)
        return taken

    def has(self, part: str) -> bool:
        """Return whether there is such a part, taken or not."""
        return part in self._names

    def is_xml(self, part: str) -> bool:
        """Return whether a part is XML."""
        return part in self._xml

    def relations(self, part: str) -> dict[str, Relation]:
        """Return the relations of a part by their ids; "" is the package itself."""
        if part not in self._relations:
            self._relations[part] = dict(self._related(part))
        return self._relations[part]

    def parse(self, part: str, parser: expat.XMLParserType) -> None:
        """Give a part to a parser. A declaration of entities is refused: Word writes none."""
        parser.StartDoctypeDeclHandler = _refuse_entities
        parser.buffer_text = True
        with self.archive.open(part) as file:
            while chunk := file.read(_READ_BYTES):
                parser.Parse(chunk, False)  # noqa: FBT003 - takes no name
            parser.Parse(b"", True)  # noqa: FBT003 - takes no name

    def unread(self) -> Iterator[str]:
        """Yield what is left and may hold text: comments and files by their number, parts by name.

        A part of XML has text if it has elements that are named as those of a run's text.
        """
        files = 0
        comments = 0
        for part in sorted(self._left):
            *folders, name = part.split("/")
            if not _NO_TEXT.isdisjoint(folders) or name.startswith(_NO_TEXT_NAMES):
                continue
            if _DIAGRAMS in folders and name.startswith(_OF_DIAGRAMS):
                continue
            if not self.is_xml(part):
                files += 1
            elif name.startswith(_COMMENTS):
                comments += self._counted(part, "comment")
            elif self._counted(part, "t"):
                yield part
        for count, noun in ((files, "embedded file"), (comments, "comment")):
            if count:
                yield number_of(count, noun)

    def pictures(self) -> int:
        """Return the number of pictures."""
        return sum("/media/" in name for name in self.archive.namelist())

    def _counted(self, part: str, name: str) -> int:
        """Return how many elements of a name have text in them."""
        counts = _Counts(name)
        try:
            self.parse(part, counts.parser)
        except expat.ExpatError:
            return 1  # it is no XML, so it may be anything
        return counts.total

    def _related(self, part: str) -> Iterator[tuple[str, Relation]]:
        folder, name = posixpath.split(part)
        relations = f"{folder}/_rels/{name}.rels".lstrip("/")
        if not self.take(relations):
            return
        found: list[dict[str, str]] = []

        def begin(name: str, attributes: dict[str, str]) -> None:
            if local_name(name) == "Relationship":
                found.append(attributes)

        parser = new_parser(begin)
        self.parse(relations, parser)
        for relation in found:
            target = ""
            if relation.get("TargetMode") != "External":
                path = posixpath.join("/", folder, relation.get("Target", ""))
                target = posixpath.normpath(path).lstrip("/")
            kind = posixpath.basename(relation.get("Type", ""))
            yield relation.get("Id", ""), Relation(kind, target)


class _Counts:
    """Counts the elements of one name that have text, which may stand in elements of theirs."""

    def __init__(self, name: str) -> None:
        self.total = 0
        self._name = name
        self._depth = 0
        self._text = False
        self.parser = new_parser(self._begin)
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._add

    def _begin(self, name: str, _attributes: object) -> None:
        if self._depth or local_name(name) == self._name:
            self._depth += 1

    def _end(self, _name: str) -> None:
        if self._depth:
            self._depth -= 1
            if not self._depth:
                self.total += self._text
                self._text = False

    def _add(self, text: str) -> None:
        if self._depth and not self._text:
            self._text = not text.isspace()


def new_parser(begin: Callable[[str, dict[str, str]], None]) -> expat.XMLParserType:
    """Return a parser that calls `begin` with the full name and attributes of each element."""
    parser = expat.ParserCreate(namespace_separator=_BETWEEN)
    parser.StartElementHandler = begin
    return parser


def local_name(name: str) -> str:
    """Return the name of an element or attribute without its namespace."""
    return name.rpartition(_BETWEEN)[2]


def value_of(attributes: Mapping[str, str], name: str) -> str | None:
    """Return an attribute by its name without a namespace."""
    for full, value in attributes.items():
        if local_name(full) == name:
            return value
    return None


def _refuse_entities(*_declaration: object) -> None:
    raise NoTextError("is a DOCX file that declares entities, as Word never does")


def _is_xml(archive: zipfile.ZipFile, file: zipfile.ZipInfo) -> bool:
    """Return whether a part can be read as XML; relationships may give that any name."""
    if file.filename.lower().endswith((".xml", ".rels")):
        return True
    with archive.open(file) as part:
        head = part.read(_HEAD_BYTES)
    return bool(head.strip(b"\0")) and head.lstrip(_BEFORE_XML)[:1] in {b"", b"<"}
