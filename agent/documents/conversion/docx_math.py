"""Writes an equation of a DOCX file on one line: a fraction as `a/b`, a power as `x^2`."""

from xml.etree.ElementTree import Element

from docllm.agent.documents.conversion.docx_package import local_name

_FORMS = {
    "f": "{num}/{den}",
    "sSup": "{e}^{sup}",
    "sSub": "{e}_{sub}",
    "sSubSup": "{e}_{sub}^{sup}",
    "sPre": "_{sub}^{sup}{e}",
    "limLow": "{e}_{lim}",
    "limUpp": "{e}^{lim}",
    "rad": "{deg}√{e}",
    "nary": "{chr}_{sub}^{sup}{e}",
}
_DEFAULTS = {"nary": "∫"}
_EMPTY = ("_{sub}", "^{sup}")


def math_line(node: Element) -> str:
    """Return the text of an equation's node, with the text of its runs in their order."""
    name = local_name(node.tag)
    if name == "t":
        return node.text or ""
    if name == "d":
        return _delimited(node)
    if name == "m":
        rows = (
            ", ".join(math_line(cell) for cell in row)
            for row in node
            if local_name(row.tag) == "mr"
        )
        return f"[{'; '.join(rows)}]"
    form = _FORMS.get(name)
    if form is None:
        # A fraction's own parts are named by its form; other nodes are written one after another.
        between = " " if name in {"oMathPara", "eqArr"} else ""
        return between.join(filter(None, map(math_line, node)))
    parts = {local_name(child.tag): math_line(child) for child in node}
    for part in _EMPTY:
        if not parts.get(part[2:-1]):
            form = form.replace(part, "") if name == "nary" else form
    parts["chr"] = _property(node, "chr", _DEFAULTS.get(name, ""))
    return form.format_map(_Grouped(parts))


class _Grouped(dict[str, str]):
    """The parts of a form; a longer one gets parentheses, and a missing one is empty."""

    def __getitem__(self, name: str) -> str:
        text = self.get(name, "")
        is_one = len(text) <= 1 or text.isalnum() or name == "chr"
        return text if is_one else f"({text})"


def _delimited(node: Element) -> str:
    inner = _property(node, "sepChr", "|").join(
        math_line(child) for child in node if local_name(child.tag) == "e"
    )
    return f"{_property(node, 'begChr', '(')}{inner}{_property(node, 'endChr', ')')}"


def _property(node: Element, name: str, default: str) -> str:
    """Return the value of one of a node's properties, which stand in an element of their own."""
    for properties in node:
        if local_name(properties.tag).endswith("Pr"):
            for entry in properties:
                if local_name(entry.tag) == name:
                    return next(iter(entry.attrib.values()), "")
    return default
