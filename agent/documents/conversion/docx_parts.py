"""Rewrites what mammoth ignores in a DOCX file, so that its text is read too.

Mammoth drops an element that it does not know, with all text in it. It says so, and then the parts
of the file that have such elements are rewritten: an equation becomes a line of text, an altChunk a
mark for the text of the part that it names, and any other element gives way to what it holds. A
text box that has no form for old readers becomes a picture of theirs.
"""

import io
import posixpath
import secrets
import zipfile
from collections.abc import Callable, Iterator
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

from docllm.agent.documents.conversion.docx_math import local, math_line

_EQUATIONS = frozenset({"oMath", "oMathPara"})
BOXES = frozenset({"AlternateContent", "drawing"})  # what may hold a text box
BOX = "txbxContent"
_ID = "id"
_TEXT = frozenset({"t", "altChunk", "oMath", BOX})
_KNOWN = frozenset("document body p r t tbl tr tc txbxContent".split())  # as mammoth has them
_UNSHOWN = frozenset({"del", "moveFrom", "rt", "rPr", "pPr"})


class DocxParts:
    """The parts of an open archive that are XML; `read` gives the bytes of any part."""

    def __init__(self, *, names: list[str], read: Callable[[str], bytes]) -> None:
        self._parts = {name: read(name) for name in names}
        self._token = secrets.token_hex(8)
        self.chunks: list[str] = []  # the parts that altChunks name, "" for one outside the file

    def rewrite(self, ignored: set[str]) -> bool:
        """Rewrite the elements of these local names. Return whether there was text in any."""
        changed = False
        for name, raw in list(self._parts.items()):
            if name.endswith(".xml") and any(tag.encode() in raw for tag in ignored):
                root = _parsed(raw)
                if self._rewrite(root, ignored, name):
                    self._parts[name] = ET.tostring(root)
                    changed = True
        return changed

    def archive(self) -> io.BytesIO:
        """Return the parts as a DOCX file without media."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, raw in self._parts.items():
                archive.writestr(name, raw)
        buffer.seek(0)
        return buffer

    def with_chunks(self, text: str, texts: list[str]) -> str:
        """Return the text with the texts of its chunks in the place of their marks."""
        first, *pieces = text.split(self._token)
        whole = [first]
        for piece in pieces:
            number, _, rest = piece.partition(";")
            whole += [texts[int(number)] if number.isdigit() else number, rest]
        return "".join(whole).strip()

    def _rewrite(self, root: Element, ignored: set[str], part: str) -> bool:
        word, changed = root.tag[: root.tag.find("}") + 1], False
        waiting = [root]
        while waiting:
            node = waiting.pop()
            kept: list[Element] = []
            left = list(reversed(node))
            while left:
                child = left.pop()
                replaced = self._replaced(child, ignored, word, part)
                if replaced is None:
                    kept.append(child)
                else:
                    changed = True
                    left += reversed(replaced)
            node[:] = kept
            waiting += kept
        return changed

    def _replaced(
        self, node: Element, ignored: set[str], word: str, part: str
    ) -> list[Element] | None:
        """Return what takes the place of a node; None if it stays."""
        name = local(node)
        if name not in ignored or name in _KNOWN:
            return None
        replaced: list[Element] | None = None
        if name in _EQUATIONS:
            replaced = [_run(word, math_line(node))]
        elif name == "altChunk":
            replaced = [_paragraph(word, self._mark(node, part))]
        elif name == "textpath":
            replaced = [Element(f"{word}{BOX}")]
            replaced[0].append(_paragraph(word, node.get("string", "")))
        elif name == "ruby":
            replaced = [inner for base in node if local(base) == "rubyBase" for inner in base]
        elif name in BOXES:
            replaced = _box(node, word)
        elif _has_text(node):
            replaced = list(node)
        return replaced

    def _mark(self, chunk: Element, part: str) -> str:
        target = next((value for key, value in chunk.items() if key.endswith(_ID)), "")
        self.chunks.append(self._target(part, target))
        return f"{self._token}{len(self.chunks) - 1};"

    def _target(self, part: str, identity: str) -> str:
        """Return the name of the part that a part's relation names, "" without one."""
        folder, name = posixpath.split(part)
        relations = self._parts.get(f"{folder}/_rels/{name}.rels".lstrip("/"))
        for relation in _parsed(relations) if relations else ():
            if relation.get("Id") == identity and relation.get("TargetMode") != "External":
                target = posixpath.join("/", folder, relation.get("Target", ""))
                return posixpath.normpath(target).lstrip("/")
        return ""


def _parsed(raw: bytes) -> Element:
    """Return the root of a part, as mammoth parses it too: expat bounds what entities expand to."""
    return ET.fromstring(raw)  # noqa: S314 - in a process with limits


def _run(word: str, text: str) -> Element:
    run = Element(f"{word}r")
    ET.SubElement(run, f"{word}t").text = text
    return run


def _paragraph(word: str, text: str) -> Element:
    paragraph = Element(f"{word}p")
    paragraph.append(_run(word, text))
    return paragraph


def _box(node: Element, word: str) -> list[Element] | None:
    """Return a text box as mammoth reads it; None for what holds none, or one that it reads."""
    if local(node) == "AlternateContent":
        forms = {local(form): form for form in reversed(node)}
        if _holds_box(forms.get("Fallback")):
            node[:] = [forms["Fallback"]]  # the other form is not read
            return None
        return list(forms["Choice"]) if _holds_box(forms.get("Choice")) else None
    if not _holds_box(node):
        return None
    picture = Element(f"{word}pict")
    picture.extend(inner for inner in _shown(node) if local(inner) == BOX)
    return [picture]


def _holds_box(node: Element | None) -> bool:
    return node is not None and any(local(inner) == BOX for inner in _shown(node))


def _has_text(node: Element) -> bool:
    return any(local(inner) in _TEXT for inner in _shown(node))


def _shown(node: Element) -> Iterator[Element]:
    """Yield the shown elements below a node in their order, but not those in a text box."""
    waiting = list(reversed(node))
    while waiting:
        inner = waiting.pop()
        yield inner
        if local(inner) != BOX:
            waiting += [child for child in reversed(inner) if local(child) not in _UNSHOWN]
