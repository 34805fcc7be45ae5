"""Name the column in each cell of a table, so that a phone can show a row's cells as lines.

A Markdown extension of the site, whose other half is in `docs/stylesheets/site.css`.
"""

from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor


class Tables(Extension):
    """Adds `Columns` to the processors of a page."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - a name of Markdown's
        """Run after the inline processors, when a head is text and not yet Markdown."""
        md.treeprocessors.register(Columns(md), "columns", priority=5)


class Columns(Treeprocessor):
    """Writes each column's name to the attribute `data-column` of its cells."""

    def run(self, root: Element) -> None:
        """Change the tables of a page."""
        for table in root.iter("table"):
            names = ["".join(head.itertext()) for head in table.iter("th")]
            for row in table.iter("tr"):
                for name, cell in zip(names, row.iter("td"), strict=False):
                    cell.set("data-column", name)


def makeExtension(**options: object) -> Tables:  # noqa: N802 - a name of Markdown's
    """Return the extension, as Markdown asks a module for it."""
    return Tables(**options)
