"""Draw Mermaid blocks as SVG while the site is built, so that a browser runs and loads nothing.

`docs/stylesheets/site.css` gives the diagrams the colors of the page, light or dark.
"""

import hashlib
import re

import mermaidx

LAYOUT = {"fontFamily": "arial, sans-serif", "htmlLabels": False, "layout": "dagre"}
# What Mermaid's editors need, larger than the diagram itself.
NOT_SHOWN = re.compile(r' data-[a-z-]+="[^"]*"')


def draw(source: str, _language: str, class_name: str, *_: object, **__: object) -> str:
    """Return the element that stands in the page for this block, as superfences expects it."""
    svg = mermaidx.render(source, config=LAYOUT).svg()
    name = f"diagram-{hashlib.sha256(source.encode()).hexdigest()[:8]}"  # unique in its page
    return f'<div class="{class_name}">{NOT_SHOWN.sub("", svg).replace("my-svg", name)}</div>'
