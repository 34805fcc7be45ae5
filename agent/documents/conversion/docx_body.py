"""Reads the text of a part of a DOCX file in one pass, with a stack of the open elements.

Any element gives way to the text in it, whatever its name and depth, unless it is known to hold
what nobody sees. So what a later Word or another program writes is read as well.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from xml.etree.ElementTree import TreeBuilder

from docllm.agent.documents.conversion.docx_math import math_line
from docllm.agent.documents.conversion.docx_package import local_name, new_parser, value_of
from docllm.agent.documents.conversion.form_fields import FormField
from docllm.agent.documents.conversion.lines import Lines
from docllm.agent.documents.conversion.symbols import symbol
from docllm.schemas.text.document_text import NoTextError

if TYPE_CHECKING:  # it reads its parts by `PartReader`
    from docllm.agent.documents.conversion.docx import Document

_EQUATIONS = frozenset({"oMath", "oMathPara"})
_BLOCKS = frozenset({"p", "tbl", "txbxContent"})  # one in a paragraph is read after it
_NOTES = frozenset({"footnote", "endnote"})
_TABLE, _ROW, _CELL = "tbl", "tr", "tc"
_SERIES = frozenset({"strCache", "numCache", "strLit", "numLit", "lvl"})  # of a chart
# Word's elements of which nobody sees anything: deleted text, and how to pronounce a sign.
_UNSHOWN = frozenset("del moveFrom rt delText delInstrText".split())
_WORD = "wordprocessingml"
_FORMER = "PrChange"  # ends the names of properties of before a change
# Elements whose characters are numbers and names for programs.
_DATA = frozenset(
    "align binData f FieldCodes fldData formatCode LinkType LockedField pctHeight pctPosHOffset "
    "pctPosVOffset pctWidth posOffset tableStyleId".split()
)
_FORMS = frozenset("checkBox checkbox checked default listEntry result".split())
_PROPERTIES = "Pr"
_LINKS = "/relationships}"
_PRIVATE = re.compile("[\uf020-\uf0ff]")
_BETWEEN, _BULLET = " | ", "- "
_MAX_OPEN, _MAX_FLOWS = 10_000, 100  # elements, and boxes, in each other


@dataclass(slots=True)
class _Flow:
    """Text that runs on: that of a part, of a note, or of a box in a paragraph."""

    depth: int  # of the element that it is the text of
    note: tuple[str, str] | None = None
    form: int | None = None  # where the pieces of another form of a text begin
    lines: Lines = field(default_factory=Lines)
    paragraph: int = 0  # the depth of the open one
    listed: bool = False
    marked: bool = False  # whether the bullet is written
    after_list: bool = False
    joined: bool = False  # with the next paragraph: the mark between them is deleted
    boxes: list[str] = field(default_factory=list)

    def end(self, *, blank: bool) -> None:
        """End a paragraph, and add the boxes in it."""
        self.lines.end(blank=blank)
        for box in self.boxes:
            self.lines.end(blank=True)
            self.lines.add(box, as_is=True)
            self.lines.end(blank=True)
        self.boxes.clear()


class PartReader:
    """Reads one part; `document` takes what the part refers to, or shows without text."""

    def __init__(self, part: str, document: "Document") -> None:
        self._part = part
        self._document = document
        self.root = ""
        self._open: list[str] = []
        self._hidden = 0  # how many elements are open in one that is not shown
        self._properties = 0
        self._shown = 0  # how many pieces of text there are
        self._flows = [_Flow(0)]
        self._math: TreeBuilder | None = None
        self._math_depth = 0
        self._fields: list[FormField] = []
        self._controls: list[FormField] = []
        self._alternatives: list[int] = []
        self._pieces: list[str] = []  # the text in them
        self._tables: list[int] = []
        self._rows: list[int] = []
        self._font = ""
        self._begins: dict[str, Callable[[dict[str, str]], object]] = {
            "AlternateContent": lambda _: self._alternatives.append(len(self._pieces)),
            "br": self._break,
            "cr": self._break,
            "endnoteReference": partial(self._refer, "endnote"),
            "fldChar": self._field,
            "fldSimple": self._simple_field,
            "footnoteReference": partial(self._refer, "footnote"),
            "noBreakHyphen": lambda _: self._put("-"),
            "numId": self._list,
            "p": self._paragraph,
            "pStyle": self._style,
            "ptab": self._tab,
            "pt": self._cell,
            "r": self._run,
            "rFonts": self._fonts,
            "sdt": lambda _: self._controls.append(FormField(self._shown)),
            "sym": self._symbol,
            "tab": self._tab,
            "tbl": self._table,
            "tc": self._cell,
            "textpath": lambda attributes: self._add_box(value_of(attributes, "string") or ""),
            "tr": self._row,
            **dict.fromkeys(_SERIES, self._row),
        }
        self._ends: dict[str, Callable[[], object]] = {
            "AlternateContent": self._end_alternatives,
            "fldSimple": lambda: self._end_field(self._fields),
            "p": self._end_paragraph,
            "sdt": lambda: self._end_field(self._controls),
            "tbl": self._end_table,
            "tr": self._end_row,
            **dict.fromkeys(_SERIES, self._end_row),
        }
        self.parser = new_parser(self._begin)
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._add_data

    def text(self) -> str:
        """Return the text of the part."""
        flow = self._flows[0]
        flow.end(blank=True)
        return flow.lines.whole()

    def _begin(self, full: str, attributes: dict[str, str]) -> None:
        name = local_name(full)
        self.root = self.root or name
        if self._hidden:
            self._hidden += 1
        elif self._math is not None:
            self._math_depth += 1
            self._math.start(full, attributes)
        elif self._is_hidden(full, name):
            self._hidden = 1
        elif name in _EQUATIONS:
            self._math, self._math_depth = TreeBuilder(), 1
            self._math.start(full, attributes)
        else:
            self._begin_shown(name, attributes)

    def _begin_shown(self, name: str, attributes: dict[str, str]) -> None:
        self._open.append(name)
        if len(self._open) > _MAX_OPEN or len(self._flows) > _MAX_FLOWS:
            raise NoTextError("is a DOCX file that is nested too deeply to be read")
        if self._is_other_form():
            self._flows.append(_Flow(len(self._open), form=len(self._pieces)))
        elif name in _BLOCKS and self._flows[-1].paragraph:
            self._flows.append(_Flow(len(self._open)))
        elif name in _NOTES and (identity := value_of(attributes, "id")) is not None:
            self._flows.append(_Flow(len(self._open), note=(name, identity)))
        elif name in _FORMS:
            self._set(name, attributes)
        self._properties += name.endswith(_PROPERTIES)
        if handle := self._begins.get(name):
            handle(attributes)
        for key, value in attributes.items():
            if _LINKS in key:
                self._add_box(self._document.linked(self._part, value, name))

    def _is_hidden(self, full: str, name: str) -> bool:
        if name in _UNSHOWN:
            if name == "del" and self._open[-2:] == ["pPr", "rPr"]:
                self._flows[-1].joined = True
            return _WORD in full
        return name.endswith(_FORMER)

    def _is_other_form(self) -> bool:
        """Return whether an element is another form of a text that is read already."""
        of_forms = self._open[-2:-1] == ["AlternateContent"]
        return of_forms and len(self._pieces) > self._alternatives[-1]

    def _end(self, full: str) -> None:
        if self._hidden:
            self._hidden -= 1
            return
        if self._math is not None:
            self._math_depth -= 1
            self._math.end(full)
            if not self._math_depth:
                equation, self._math = self._math.close(), None
                self._put(math_line(equation))
            return
        name = self._open[-1]
        if handle := self._ends.get(name):
            handle()
        self._properties -= name.endswith(_PROPERTIES)
        flow = self._flows[-1]
        if flow.depth == len(self._open):
            self._flows.pop()
            flow.end(blank=True)
            if flow.note is not None:
                self._document.note(*flow.note, flow.lines.whole())
            elif flow.form is None or self._says_more(flow.form):
                self._flows[-1].boxes.append(flow.lines.whole())
        self._open.pop()

    def _says_more(self, form: int) -> bool:
        """Return whether the text of a form is not that of the one before it."""
        first = self._pieces[self._alternatives[-1] : form]
        other = self._pieces[form:]
        return _letters(other) not in _letters(first)

    def _end_alternatives(self) -> None:
        self._alternatives.pop()
        if not self._alternatives:
            self._pieces.clear()

    def _add_data(self, text: str) -> None:
        if self._hidden:
            return
        if self._math is not None:
            self._math.data(text)
            return
        name = self._open[-1]
        if name == "t":
            self._put(_PRIVATE.sub(self._sign, text))
        elif name == "instrText":
            if self._fields:
                self._fields[-1].instruct(text)
        elif name not in _DATA and not text.isspace():
            self._put(text)

    def _put(self, text: str) -> None:
        if text and not text.isspace():
            self._shown += 1
            if self._alternatives:
                self._pieces.append(text)
            flow = self._flows[-1]
            if flow.listed and not flow.marked:
                flow.marked = flow.after_list = True
                flow.lines.mark(_BULLET)
            elif flow.after_list and not flow.listed:
                flow.after_list = False
                flow.lines.end(blank=True)
        self._flows[-1].lines.add(text)

    def _add_box(self, text: str) -> None:
        """Add a text that is no part of the open paragraph."""
        if text:
            self._shown += 1
            if self._alternatives:
                self._pieces.append(text)
            flow = self._flows[-1]
            flow.boxes.append(text)
            if not flow.paragraph:
                flow.end(blank=True)

    def _paragraph(self, _attributes: object) -> None:
        flow = self._flows[-1]
        if flow.joined:
            flow.joined = False
        else:
            flow.lines.end()
            flow.listed = flow.marked = False
        flow.paragraph = len(self._open)

    def _end_paragraph(self) -> None:
        flow = self._flows[-1]
        if flow.paragraph == len(self._open):
            flow.paragraph = 0
            if not flow.joined:
                flow.end(blank=not flow.listed)

    def _style(self, attributes: dict[str, str]) -> None:
        self._flows[-1].listed = value_of(attributes, "val") in self._document.listed

    def _list(self, attributes: dict[str, str]) -> None:
        self._flows[-1].listed = value_of(attributes, "val") != "0"

    def _run(self, _attributes: object) -> None:
        self._font = ""

    def _fonts(self, attributes: dict[str, str]) -> None:
        self._font = value_of(attributes, "ascii") or value_of(attributes, "hAnsi") or ""

    def _break(self, _attributes: object) -> None:
        if not self._properties:
            self._flows[-1].lines.end_one()

    def _tab(self, _attributes: object) -> None:
        if not self._properties:
            self._flows[-1].lines.add("\t")

    def _refer(self, note: str, attributes: dict[str, str]) -> None:
        self._put(self._document.refer(note, value_of(attributes, "id") or ""))

    def _symbol(self, attributes: dict[str, str]) -> None:
        code = value_of(attributes, "char") or ""
        try:
            shown = symbol(value_of(attributes, "font") or "", int(code[:8], 16))
        except ValueError:
            shown = None
        self._document.symbols += shown is None
        self._put(shown or "")

    def _sign(self, match: re.Match[str]) -> str:
        shown = symbol(self._font, ord(match[0]))
        self._document.symbols += shown is None
        return match[0] if shown is None else shown

    def _field(self, attributes: dict[str, str]) -> None:
        kind = value_of(attributes, "fldCharType")
        if kind == "begin":
            self._fields.append(FormField(self._shown))
        elif kind == "separate" and self._fields:
            self._fields[-1].shown = self._shown
        elif kind == "end" and self._fields:
            self._end_field(self._fields)

    def _simple_field(self, attributes: dict[str, str]) -> None:
        self._fields.append(FormField(self._shown))
        self._fields[-1].instruct(value_of(attributes, "instr") or "")

    def _end_field(self, fields: list[FormField]) -> None:
        ended = fields.pop()
        if ended.shown == self._shown and (text := ended.text()):
            self._put(text)

    def _set(self, name: str, attributes: dict[str, str]) -> None:
        owners = self._fields if "ffData" in self._open[-4:] else self._controls
        if owners:
            owners[-1].set(
                name.lower() if name == "checkBox" else name, value_of(attributes, "val")
            )

    def _table(self, _attributes: object) -> None:
        self._tables.append(0)
        self._flows[-1].lines.end(blank=True)

    def _end_table(self) -> None:
        self._tables.pop()
        self._flows[-1].lines.end(blank=True)

    def _row(self, _attributes: object) -> None:
        if self._tables:
            self._tables[-1] += 1
        self._rows.append(0)
        self._flows[-1].lines.end()

    def _end_row(self) -> None:
        self._rows.pop()
        self._flows[-1].lines.end()

    def _cell(self, _attributes: object) -> None:
        if not self._rows:
            return  # it is a point of a diagram
        lines = self._flows[-1].lines
        if self._rows[-1]:
            lines.mark(_BETWEEN, breaks=0)
        else:
            is_first = self._open[-1] == _CELL and self._tables[-1:] == [1]
            lines.mark("", breaks=2 if is_first else 1)
        self._rows[-1] += 1


def _letters(pieces: list[str]) -> str:
    return "".join("".join(pieces).split())
